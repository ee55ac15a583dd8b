// cyclotron checkpoint: what it prints, what it refuses, and with which exit status.
#define _GNU_SOURCE
#include "support/huggingface.h"
#include "support/support.h"

#include "base/file.h"
#include "checkpoint/safetensors.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static char folder[256];
static char out[65536];

// Runs the program with these arguments, in which @ stands for the test's folder; what it says on
// stdout and stderr lands in `out`.
__attribute__((format(printf, 2, 3))) static void run(int wanted, const char *format, ...)
{
    char arguments[1024], command[4096];
    va_list values;
    va_start(values, format);
    vsnprintf(arguments, sizeof(arguments), format, values);
    va_end(values);
    int length = snprintf(command, sizeof(command), "%s ", cy_test_program());
    for (const char *c = arguments; *c != '\0'; c++) {
        length += *c == '@'
            ? snprintf(command + length, sizeof(command) - (size_t)length, "%s", folder)
            : snprintf(command + length, sizeof(command) - (size_t)length, "%c", *c);
    }
    snprintf(command + length, sizeof(command) - (size_t)length, " 2>&1 </dev/null");
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const size_t got = fread(out, 1, sizeof(out) - 1, pipe);
    out[got] = '\0';
    const int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted) {
        print_error("%s: status %d, wanted %d:\n%s", command, status, wanted, out);
        fail();
    }
}

static void says(const char *words)
{
    if (strstr(out, words) != NULL) return;
    print_error("does not say: %s\n%s", words, out);
    fail();
}

static void a_folder_goes_in_and_out(void **state)
{
    (void)state;
    char path[400];
    const cy_model_shape shape = cy_test_shape();
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/hf", folder);
    cy_test_huggingface(path, &shape, 2, CY_BF16);

    run(0, "checkpoint inspect @/hf");
    says("Hugging Face folder");
    says("llama: 2 layers, hidden 16");
    run(0, "checkpoint verify @/hf");
    says("headers and sizes agree");
    run(0, "checkpoint import @/hf --out=@/own");
    run(2, "checkpoint import @/hf --out=@/own");
    says("cyclotron: error: ");
    says("own is there already");
    says("  hint: name a new folder");
    run(2, "checkpoint import @/own --out=@/again");
    says("is a checkpoint already");
    run(2, "checkpoint import @/hf");
    says("--out");
    run(0, "checkpoint verify @/own --json");
    says("\"ok\":true");
    const char *seconds = strstr(out, "\"seconds\":"); // that it took, not since some day
    assert_non_null(seconds);
    assert_true(strtod(seconds + strlen("\"seconds\":"), NULL) < 60.0);
    run(0, "checkpoint inspect @/own --json");
    says("\"format\":\"cyclotron\",\"step\":0,\"tokens\":0,\"parameters\":7504");
    says("{\"name\":\"lm_head.weight\",\"kind\":\"weight\",\"dtype\":\"bf16\",\"shape\":[64,16]}");
    run(0, "checkpoint inspect @/own --tensors");
    says("model.layers.1.mlp.down_proj.weight");
    run(0, "checkpoint export @/own --out=@/back --dtype=fp32 --shard-size=10KB");
    run(0, "checkpoint inspect @/back");
    says("fp32");
    run(0, "checkpoint compare @/own @/back --within=0");
    says("weight      21 of 21 tensors equal; furthest 0.00e+00");
    run(0, "checkpoint compare @/own @/hf --json");
    says("{\"difference\":0,\"equal\":true,\"tensors\":[{\"kind\":\"weight\",\"name\":\"lm_head."
         "weight\"");
    run(2, "checkpoint export @/own --out=@/other --shard-size=big");
    says("--shard-size=big is not a size");
    run(2, "checkpoint inspect @/nothing");
    says("nothing is not a folder");
}

static void damage_ends_with_status_1(void **state)
{
    (void)state;
    char path[400];
    snprintf(path, sizeof(path), "%s/own/weights-00000.safetensors", folder);
    cy_test_flip(path, -9, 1);
    run(1, "checkpoint verify @/own");
    says("weights-00000.safetensors: bytes ");
    says("of tensor model.norm.weight, changed");
    run(1, "checkpoint verify @/own --json");
    says("{\"ok\":false}");
    run(1, "checkpoint export @/own --out=@/other");
    snprintf(path, sizeof(path), "%s/other", folder);
    assert_false(cy_path_exists(path));
}

static void a_changed_weight_is_measured(void **state)
{
    (void)state;
    char path[400];
    cy_text text = {0};
    cy_safetensors file;
    run(0, "checkpoint export @/hf --out=@/changed --dtype=fp32");
    snprintf(path, sizeof(path), "%s/changed/model.safetensors", folder);
    CY_CHECK_OK(cy_file_read(&text, path, 1 << 20));
    CY_CHECK_OK(cy_safetensors_open(&file, path));
    const cy_safetensors_entry *entry = cy_safetensors_find(&file, "model.norm.weight");
    float norm[16];
    double squares = 0;
    assert_int_equal(entry->bytes, sizeof(norm));
    memcpy(norm, text.bytes + entry->offset, sizeof(norm));
    for (int i = 0; i < 16; i++)
        squares += (double)norm[i] * (double)norm[i];
    norm[15] += (float)sqrt(squares / 64); // an eighth of the tensor's 2-norm
    memcpy(text.bytes + entry->offset, norm, sizeof(norm));
    cy_safetensors_close(&file);
    CY_CHECK_OK(cy_file_write(path, text.bytes, text.length));
    cy_text_free(&text);
    run(0, "checkpoint compare @/hf @/changed");
    says("weight      20 of 21 tensors equal; furthest 1.25e-01, model.norm.weight");
    run(0, "checkpoint compare @/hf @/changed --tensors --within=0.2");
    says("  model.norm.weight                                             1.25e-01\n");
    run(1, "checkpoint compare @/hf @/changed --within=0.1");
    says("model.norm.weight of ");
    says(" are 1.25e-01 apart, allowed are 1.00e-01");
    run(2, "checkpoint compare @/hf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_goes_in_and_out),
        cmocka_unit_test(a_changed_weight_is_measured),
        cmocka_unit_test(damage_ends_with_status_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
