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

// All that it says, in which @ stands for the test's folder.
static void is(const char *text)
{
    char wanted[4096];
    size_t length = 0;
    for (const char *c = text; *c != '\0'; c++) {
        const char one[2] = {*c, '\0'};
        length += (size_t)snprintf(
            wanted + length, sizeof(wanted) - length, "%s", *c == '@' ? folder : one);
        assert_true(length < sizeof(wanted));
    }
    assert_string_equal(out, wanted);
}

#define MODEL "llama: 2 layers, hidden 16, ffn 40, 4 heads of 4, 2 kv heads, vocabulary 64"

static void a_folder_goes_in_and_out(void **state)
{
    (void)state;
    char path[400];
    const cy_model_shape shape = cy_test_shape();
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/hf", folder);
    cy_test_huggingface(path, &shape, 2, CY_BF16);

    run(0, "checkpoint inspect @/hf");
    is("checkpoint  @/hf\nformat      Hugging Face folder: weights only, no checksums\n"
       "model       " MODEL "\nparameters  7504\nweight      21 tensors, 0.000 GB, bf16\n"
       "files       2, 0.000 GB\n");
    run(0, "checkpoint verify @/hf");
    says("headers and sizes agree");
    run(0, "checkpoint import @/hf --out=@/own");
    run(2, "checkpoint import @/hf --out=@/own");
    is("cyclotron: error: @/own is there already: it is not written over\n"
       "  hint: name a new folder, or remove that one\n");
    run(2, "checkpoint import @/own --out=@/again");
    says("is a checkpoint already");
    run(2, "checkpoint import @/hf");
    says("--out");
    run(0, "checkpoint verify @/own --json");
    says("\"ok\":true");
    const char *seconds = strstr(out, "\"seconds\":"); // that it took, not since some day
    assert_non_null(seconds);
    assert_true(strtod(seconds + strlen("\"seconds\":"), NULL) < 1e6);
    run(0, "checkpoint inspect @/own --json");
    says("\"format\":\"cyclotron\",\"step\":0,\"tokens\":0,\"parameters\":7504");
    says("{\"name\":\"lm_head.weight\",\"kind\":\"weight\",\"dtype\":\"bf16\",\"shape\":[64,16]}");
    run(0, "checkpoint inspect @/own");
    is("checkpoint  @/own\nformat      version 1, a checksum for each MiB\n"
       "step        0, 0 tokens\nmodel       " MODEL "\nparameters  7504\n"
       "weight      21 tensors, 0.000 GB, bf16\nfiles       2, 0.000 GB\n");
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
    run(2, "checkpoint inspect @/nothing");
    is("cyclotron: error: @/nothing is not a folder\n");
}

static void sizes_have_units(void **state)
{
    (void)state;
    // Nothing is more than 2^64 - 1 bytes.
    static const char *const sizes[] = {"18446744073709551615", "18446744073709551615B",
        "18446744073709551KB", "18446744073709MB", "18446744073GB", "9000", "9000B", "9KB", "1"};
    static const int files[] = {1, 1, 1, 1, 1, 4, 4, 4, 21};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char words[40];
        run(0, "checkpoint export @/own --out=@/size%zu --shard-size=%s --dtype=fp32", i, sizes[i]);
        run(0, "checkpoint inspect @/size%zu", i);
        snprintf(words, sizeof(words), "files       %d, 0.000 GB\n", files[i]);
        says(words);
    }
    static const char *const others[] = {"big", "0", "0GB", "-5", "+5", "5gb", "5TB", "GB", "5 GB",
        "5.5GB", "18446744073709552KB", "18446744073710MB", "18446744074GB", ""};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char wanted[300];
        run(2, "checkpoint export @/own --out=@/other --shard-size='%s'", others[i]);
        snprintf(wanted, sizeof(wanted),
            "cyclotron: error: --shard-size=%s is not a size such as 500MB or 5GB\n"
            "  hint: 'cyclotron checkpoint export --help' shows how it is called\n",
            others[i]);
        is(wanted);
    }
}

static void a_tied_model_says_so(void **state)
{
    (void)state;
    char path[400];
    cy_model_shape shape = cy_test_shape();
    shape.tied = true;
    snprintf(path, sizeof(path), "%s/tied", folder);
    cy_test_huggingface(path, &shape, 1, CY_F32);
    run(0, "checkpoint inspect @/tied");
    is("checkpoint  @/tied\nformat      Hugging Face folder: weights only, no checksums\n"
       "model       " MODEL ", tied\nparameters  6480\n"
       "weight      20 tensors, 0.000 GB, fp32\nfiles       1, 0.000 GB\n");
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

// Adds `part` of the tensor's 2-norm to a weight of 16 of the exported model in @/changed.
static void change(const char *name, double part)
{
    char path[400];
    cy_text text = {0};
    cy_safetensors file;
    snprintf(path, sizeof(path), "%s/changed/model.safetensors", folder);
    CY_CHECK_OK(cy_file_read(&text, path, 1 << 20));
    CY_CHECK_OK(cy_safetensors_open(&file, path));
    const cy_safetensors_entry *entry = cy_safetensors_find(&file, name);
    float norm[16];
    double squares = 0;
    assert_int_equal(entry->bytes, sizeof(norm));
    memcpy(norm, text.bytes + entry->offset, sizeof(norm));
    for (int i = 0; i < 16; i++)
        squares += (double)norm[i] * (double)norm[i];
    norm[15] += (float)(part * sqrt(squares));
    memcpy(text.bytes + entry->offset, norm, sizeof(norm));
    cy_safetensors_close(&file);
    CY_CHECK_OK(cy_file_write(path, text.bytes, text.length));
    cy_text_free(&text);
}

static void a_changed_weight_is_measured(void **state)
{
    (void)state;
    run(0, "checkpoint export @/hf --out=@/changed --dtype=fp32");
    change("model.norm.weight", 0.125);
    run(0, "checkpoint compare @/hf @/changed");
    says("weight      20 of 21 tensors equal; furthest 1.25e-01, model.norm.weight");
    run(0, "checkpoint compare @/hf @/changed --tensors --within=0.2");
    says("  model.norm.weight                                             1.25e-01\n");
    run(1, "checkpoint compare @/hf @/changed --within=0.1");
    is("cyclotron: error: model.norm.weight of @/hf and of @/changed are 1.25e-01 apart, allowed "
       "are 1.00e-01\n" // what is buffered comes last
       "weight      20 of 21 tensors equal; furthest 1.25e-01, model.norm.weight\n");
    run(1, "checkpoint compare @/hf @/changed --within=0.1249 --json");
    says("\"name\":\"model.norm.weight\",\"difference\":0.125");
    says(",\"equal\":false,\"tensors\":[");
    says("\"name\":\"lm_head.weight\",\"difference\":0,\"equal\":true}");
    run(0, "checkpoint compare @/hf @/changed --within=0.1251 --json");
    run(2, "checkpoint compare @/hf");
    // The furthest of several, wherever it stands among them.
    change("model.layers.0.input_layernorm.weight", 0.25);
    run(0, "checkpoint compare @/hf @/changed");
    says("19 of 21 tensors equal; furthest 2.50e-01, model.layers.0.input_layernorm.weight");
    // What is no number is further than all, also where others follow.
    change("model.layers.0.input_layernorm.weight", (double)NAN);
    run(1, "checkpoint compare @/hf @/changed --within=0.9");
    says("furthest nan, model.layers.0.input_layernorm.weight");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_goes_in_and_out),
        cmocka_unit_test(sizes_have_units),
        cmocka_unit_test(a_tied_model_says_so),
        cmocka_unit_test(a_changed_weight_is_measured),
        cmocka_unit_test(damage_ends_with_status_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
