// Text from a trained model in one's own program: continues each line of standard input, and says
// how many tokens that took.
//
//     cc -o generate generate.c $(pkg-config --cflags --libs cyclotron)
//     echo "In the beginning" | ./generate build/demo/checkpoints

#include <cyclotron/generate.h>
#include <cyclotron/tokenizer.h>

#include <stdio.h>
#include <string.h>

static void on_text(void *context, const char *text, size_t bytes)
{
    fwrite(text, 1, bytes, context);
}

static int fail(void)
{
    fprintf(stderr, "%s\n", cy_error_text());
    return 1;
}

static int continue_line(cy_generator *generator, const char *line)
{
    cy_generate_request request = cy_generate_defaults();
    request.prompt = line;
    request.prompt_bytes = strlen(line);
    request.max_tokens = 32;
    request.temperature = 0.8;
    request.top_p = 0.95;
    request.context = stdout;
    request.on_text = on_text;
    printf("%s", line);
    cy_generated generated;
    if (cy_generate(generator, &request, &generated) != CY_OK) return fail();
    printf("\n(%lld tokens read, %lld said)\n", (long long)generated.prompt_tokens,
        (long long)generated.count);
    cy_generated_free(&generated);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s CHECKPOINT\n", argv[0]);
        return 2;
    }
    const cy_generator_options options = {.path = argv[1]};
    cy_generator *generator = NULL;
    if (cy_generator_open(&generator, &options) != CY_OK) return fail();
    int status = 0;
    char line[1000];
    while (status == 0 && fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0') status = continue_line(generator, line);
    }
    cy_generator_close(generator);
    return status;
}
