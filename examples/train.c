// Trains from one's own program: trains the configuration that it is given and stops by itself once
// the loss is low enough.
//
//     cc -o train train.c $(pkg-config --cflags --libs cyclotron)
//     ./train ../examples/demo.json 5.0 --training.total_train_steps=200
//     mpirun -n 2 ./train ../examples/demo.json 5.0 --distributed.backend=mpi

#include <cyclotron/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct watch {
    double good_enough; // a loss
    double loss;        // of the last step
} watch;

static void on_step(void *context, const cy_train_step *step)
{
    watch *seen = context;
    seen->loss = step->loss;
    printf("step %lld: loss %.4f, %.0f tokens/s\n", (long long)step->step, step->loss,
        step->tokens_per_second);
}

// Asked once a step. The run ends after it, with a save where checkpoint.save_dir is set.
static int should_stop(void *context)
{
    const watch *seen = context;
    return seen->loss < seen->good_enough;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s CONFIG LOSS [--section.key=value ...]\n", argv[0]);
        return 2;
    }
    // The library wants "section.key=value".
    for (int i = 3; i < argc; i++)
        argv[i] += strspn(argv[i], "-");
    watch seen = {.good_enough = strtod(argv[2], NULL), .loss = 1e30};
    const cy_train_request request = {
        .config = argv[1],
        .overrides = (const char *const *)argv + 3,
        .override_count = argc - 3,
        .under_mpi = getenv("OMPI_COMM_WORLD_RANK") != NULL || getenv("PMI_RANK") != NULL,
        .context = &seen,
        .on_step = on_step,
        .should_stop = should_stop,
    };
    cy_train_summary summary;
    if (cy_train(&request, &summary) != CY_OK) {
        fprintf(stderr, "%s\n", cy_error_text());
        return 1;
    }
    if (summary.step == 0) return 0; // a rank beside rank zero
    printf("%s after %lld steps and %lld tokens, loss %.4f\n",
        summary.stopped ? "good enough" : "done", (long long)summary.step,
        (long long)summary.tokens, summary.loss);
    return 0;
}
