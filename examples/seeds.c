// Trains one configuration with several seeds, one after the other in one process, and prints how
// far the losses lie apart. A seed whose training fails is reported and left out.
//
//     cc -o seeds seeds.c $(pkg-config --cflags --libs cyclotron)
//     ./seeds ../examples/tiny.json 3 --training.total_train_steps=200
//     mpirun -n 2 ./seeds ../examples/tiny.json 3 --distributed.dp_size=2

#include <cyclotron/train.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OVERRIDES_MOST 32

// The launcher's number of this process: the first one reports.
static int process_number(void)
{
    const char *text = getenv("OMPI_COMM_WORLD_RANK");
    if (text == NULL) text = getenv("PMI_RANK");
    return text != NULL ? (int)strtol(text, NULL, 10) : -1;
}

int main(int argc, char **argv)
{
    const char *overrides[OVERRIDES_MOST];
    const int count = argc - 3;
    if (count < 0 || count >= OVERRIDES_MOST) {
        fprintf(stderr, "usage: %s CONFIG SEEDS [--section.key=value ...]\n", argv[0]);
        return 2;
    }
    for (int i = 0; i < count; i++) // the library wants "section.key=value"
        overrides[i] = argv[3 + i] + strspn(argv[3 + i], "-");
    const int seeds = (int)strtol(argv[2], NULL, 10);
    const int process = process_number();
    double least = 1e30, most = -1e30;
    int trained = 0;
    for (int seed = 1; seed <= seeds; seed++) {
        char option[32];
        snprintf(option, sizeof(option), "training.seed=%d", seed);
        overrides[count] = option;
        const cy_train_request request = {
            .config = argv[1],
            .overrides = overrides,
            .override_count = count + 1,
            .under_mpi = process >= 0,
            .return_failures = 1, // so that all processes go on with the next seed
        };
        cy_train_summary summary;
        const cy_status status = cy_train(&request, &summary);
        if (status == CY_ERR_REQUEST) {
            fprintf(stderr, "%s\n", cy_error_text());
            return 2;
        }
        if (process > 0) continue;
        if (status != CY_OK) {
            printf("seed %d: %s\n", seed, cy_error_text());
            continue;
        }
        printf("seed %d: loss %.17g\n", seed, summary.loss);
        least = summary.loss < least ? summary.loss : least;
        most = summary.loss > most ? summary.loss : most;
        trained++;
    }
    if (trained > 0) printf("%d of %d seeds, losses %.4g apart\n", trained, seeds, most - least);
    return trained > 0 || process > 0 ? 0 : 1;
}
