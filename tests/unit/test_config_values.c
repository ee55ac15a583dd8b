// Each kind of value at the ends of its range, and what is written of it: every refusal is compared
// as a whole, with its numbers and its advice.

#include "support/configs.h"
#include "support/support.h"

#include "config/pipeline.h"
#include "config/lr_schedule.h"
#include "config/table.h"
#include "config/value.h"

#include <stdio.h>
#include <string.h>

static const cy_test_refusal numbers_have_ends_cases[] = {
    {"distributed.tp_size=0",
        "distributed.tp_size = 0: a whole number from 1 to 65536 is wanted\n"},
    {"distributed.tp_size=1", NULL},
    {"distributed.tp_size=65536", NULL},
    {"distributed.tp_size=65537",
        "distributed.tp_size = 65537: a whole number from 1 to 65536 is wanted\n"},
    {"distributed.tp_size=2.0", NULL},
    {"distributed.tp_size=2.5",
        "distributed.tp_size = 2.5: a whole number from 1 to 65536 is wanted\n"},
    {"distributed.tp_size=abc",
        "distributed.tp_size = \"abc\": a whole number from 1 to 65536 is wanted\n"},
    {"distributed.tp_size=",
        "distributed.tp_size = \"\": a whole number from 1 to 65536 is wanted\n"},
    {"distributed.tp_size='2'",
        "distributed.tp_size = \"2\": a whole number from 1 to 65536 is wanted\n"},
    {"distributed.tp_size=true",
        "distributed.tp_size = true: a whole number from 1 to 65536 is wanted\n"},
    {"distributed.tp_size=[2]",
        "distributed.tp_size = [2]: a whole number from 1 to 65536 is wanted\n"},
    {"distributed.topk_warmup_steps=-2",
        "distributed.topk_warmup_steps = -2: a whole number from -1 to 281474976710656 is "
        "wanted\n"},
    {"distributed.topk_warmup_steps=-1", NULL},
    {"training.warmup_steps=-1",
        "training.warmup_steps = -1: a whole number of at least 0 is wanted\n"},
    {"training.warmup_steps=0", NULL},
    {"training.total_train_steps=0",
        "training.total_train_steps = 0: a whole number of at least 1 is wanted\n"},
    {"training.total_train_steps=1", NULL},
    {"training.seed=9007199254740992.0", NULL},
    {"training.seed=9007199254740994.0",
        "training.seed = 9.00719925474e15: a whole number of at least 0 is wanted\n"},
    {"training.seed=9223372036854775807", NULL},
    {"distributed.bucket_mb=0",
        "distributed.bucket_mb = 0: a number from above 0 to 1000000000 is wanted\n"},
    {"distributed.bucket_mb=1e-300", NULL},
    {"distributed.bucket_mb=x",
        "distributed.bucket_mb = \"x\": a number from above 0 to 1000000000 is wanted\n"},
    {"distributed.first_bucket_mb=0",
        "distributed.first_bucket_mb = 0: a number from above 0 to 1000000000 is wanted\n"},
    {"distributed.first_bucket_mb=-1",
        "distributed.first_bucket_mb = -1: a number from above 0 to 1000000000 is wanted\n"},
    {"distributed.first_bucket_mb=25", NULL},
    {"distributed.topk_ratio=0",
        "distributed.topk_ratio = 0: a number from above 0 to 1 is wanted\n"},
    {"distributed.topk_ratio=1e-9", NULL},
    {"distributed.topk_ratio=1", NULL},
    {"distributed.topk_ratio=1.0001",
        "distributed.topk_ratio = 1.0001: a number from above 0 to 1 is wanted\n"},
    {"training.adam_beta1=-1e-9",
        "training.adam_beta1 = -1e-9: a number from 0 to below 1 is wanted\n"},
    {"training.adam_beta1=0", NULL},
    {"training.adam_beta1=0.9999", NULL},
    {"training.adam_beta1=1", "training.adam_beta1 = 1: a number from 0 to below 1 is wanted\n"},
    {"training.learning_rate=-1e-9",
        "training.learning_rate = -1e-9: a number from 0 to 10 is wanted\n"},
    {"training.learning_rate=0", NULL},
    {"training.learning_rate=10", NULL},
    {"training.learning_rate=1e39",
        "training.learning_rate = 1e39: a number from 0 to 10 is wanted\n"},
    {"training.learning_rate=nan",
        "training.learning_rate = \"nan\": a number from 0 to 10 is wanted\n"},
    {"training.adam_eps=1e-38",
        "training.adam_eps = 1e-38: a number from 1e-37 to 1e+30 is wanted\n"},
    {"training.learning_rate=false",
        "training.learning_rate = false: a number from 0 to 10 is wanted\n"},
    {"training.learning_rate='1'",
        "training.learning_rate = \"1\": a number from 0 to 10 is wanted\n"},
};

static void numbers_have_ends(void **state)
{
    (void)state;
    cy_test_refusals(
        numbers_have_ends_cases, CY_TEST_COUNT(numbers_have_ends_cases), CY_TEST_OPTION);
}

static const cy_test_refusal flags_and_spoken_numbers_cases[] = {
    {"training.strict=1", "training.strict = 1: true or false is wanted\n"},
    {"training.strict=yes", "training.strict = \"yes\": true or false is wanted\n"},
    {"training.strict='true'", "training.strict = \"true\": true or false is wanted\n"},
    {"model.tie_word_embeddings=0", "model.tie_word_embeddings = 0: true or false is wanted\n"},
    {"model.tie_word_embeddings=false", NULL},
    {"environment.FLASH_ATTEN=0", NULL},
    {"environment.FLASH_ATTEN=1", NULL},
    {"environment.FLASH_ATTEN=2", "environment.FLASH_ATTEN = \"2\": 0 or 1 is wanted\n"},
    {"environment.FLASH_ATTEN=0.5", "environment.FLASH_ATTEN = \"0.5\": 0 or 1 is wanted\n"},
    {"environment.FLASH_ATTEN=true", "environment.FLASH_ATTEN = \"true\": 0 or 1 is wanted\n"},
    {"environment.FLASH_ATTEN=", "environment.FLASH_ATTEN = \"\": 0 or 1 is wanted\n"},
    {"environment.OMP_NUM_THREADS=3", NULL},
    {"environment.OMP_NUM_THREADS=0",
        "environment.OMP_NUM_THREADS = \"0\": a whole number from 1 to 4096 is wanted\n"},
    {"environment.OMP_NUM_THREADS=4096", NULL},
    {"environment.OMP_NUM_THREADS=4097",
        "environment.OMP_NUM_THREADS = \"4097\": a whole number from 1 to 4096 is wanted\n"},
    {"environment.OMP_NUM_THREADS= 3",
        "environment.OMP_NUM_THREADS = \" 3\": a whole number from 1 to 4096 is wanted\n"},
    {"environment.OMP_NUM_THREADS=3 ",
        "environment.OMP_NUM_THREADS = \"3 \": a whole number from 1 to 4096 is wanted\n"},
    {"environment.OMP_NUM_THREADS=",
        "environment.OMP_NUM_THREADS = \"\": a whole number from 1 to 4096 is wanted\n"},
    {"environment.OMP_NUM_THREADS=inf",
        "environment.OMP_NUM_THREADS = \"inf\": a whole number from 1 to 4096 is wanted\n"},
    {"environment.OMP_NUM_THREADS=nan",
        "environment.OMP_NUM_THREADS = \"nan\": a whole number from 1 to 4096 is wanted\n"},
    {"environment.OMP_NUM_THREADS=1.5",
        "environment.OMP_NUM_THREADS = \"1.5\": a whole number from 1 to 4096 is wanted\n"},
    {"environment.OMP_NUM_THREADS=1e1", NULL},
};

static void flags_and_spoken_numbers(void **state)
{
    (void)state;
    cy_test_refusals(flags_and_spoken_numbers_cases, CY_TEST_COUNT(flags_and_spoken_numbers_cases),
        CY_TEST_OPTION);
}

static const cy_test_refusal words_and_the_nearest_one_cases[] = {
    {"model.name=123", NULL}, // a text, though it would be a number in a file
    {"logging.run_name=true", NULL},
    {"training.lr_schedule=true",
        "training.lr_schedule = \"true\": one of constant, linear, cosine, wsd is wanted\n"},
    {"model.dtype=3", "model.dtype = \"3\": one of bf16, fp16, fp32, fp64 is wanted\n"},
    {"training.lr_schedule=wsd", NULL},
    {"training.lr_schedule=cosin",
        "training.lr_schedule = \"cosin\": one of constant, linear, cosine, wsd is wanted\n"
        "  did you mean cosine?\n"},
    {"training.lr_schedule=wsdd",
        "training.lr_schedule = \"wsdd\": one of constant, linear, cosine, wsd is wanted\n"
        "  did you mean wsd?\n"},
    {"training.lr_schedule=xylophone",
        "training.lr_schedule = \"xylophone\": one of constant, linear, cosine, wsd is wanted\n"},
    {"training.lr_schedule=",
        "training.lr_schedule = \"\": one of constant, linear, cosine, wsd is wanted\n"},
    {"distributed.pp_engine=zero_buble",
        "distributed.pp_engine = \"zero_buble\": one of afab, 1f1b, interleaved, zero_bubble, csv "
        "is wanted\n"
        "  did you mean zero_bubble?\n"},
    {"distributed.pp_engine=afa",
        "distributed.pp_engine = \"afa\": one of afab, 1f1b, interleaved, zero_bubble, csv is "
        "wanted\n"
        "  did you mean afab?\n"},
    {"distributed.backend=nncl",
        "distributed.backend = \"nncl\": one of auto, self, threads, mpi, nccl, gloo is wanted\n"
        "  did you mean nccl?\n"},
    {"model.init=pretraind",
        "model.init = \"pretraind\": one of random, pretrained is wanted\n"
        "  did you mean pretrained?\n"},
    {"model.init=nothing", "model.init = \"nothing\": one of random, pretrained is wanted\n"},
    {"model.dtype=bf16", NULL},
    {"model.dtype=float16", NULL},
    {"model.dtype=fp32", NULL},
    {"model.dtype=float64", NULL},
    {"model.dtype=int32", "model.dtype = \"int32\": one of bf16, fp16, fp32, fp64 is wanted\n"},
    {"model.dtype=word", "model.dtype = \"word\": one of bf16, fp16, fp32, fp64 is wanted\n"},
};

static void words_and_the_nearest_one(void **state)
{
    (void)state;
    cy_test_refusals(words_and_the_nearest_one_cases,
        CY_TEST_COUNT(words_and_the_nearest_one_cases), CY_TEST_OPTION);
}

// Words are turned into values of an enum by their place in the list.
static void each_word_has_its_value(void **state)
{
    (void)state;
    int count, wrong = 0;
    const cy_key *keys = cy_config_keys(&count);
    for (const cy_key *key = keys; key < keys + count; key++) {
        if (key->kind != CY_KEY_CHOICE) continue;
        int words = 1;
        for (const char *c = key->values; *c != '\0'; c++)
            words += *c == '|';
        if (words == key->choices) continue;
        print_error("%s.%s: %d words in src/config/table.c (%s), but %d values in the enum of "
                    "src/config/config.h: change both, and what the compiler then names\n",
            key->section, key->name, words, key->values, key->choices);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

// Those whose values another part names: the table's words stand in their order.
static void words_of_other_parts(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        cy_lr_schedule_kind kind;
    } rates[] = {
        {"training.lr_schedule=constant", CY_LR_CONSTANT},
        {"training.lr_schedule=linear", CY_LR_LINEAR},
        {"training.lr_schedule=cosine", CY_LR_COSINE},
        {"training.lr_schedule=wsd", CY_LR_WSD},
    };
    static const char *const engines[] = {"afab", "1f1b", "interleaved", "zero_bubble", "csv"};
    cy_config c;
    for (size_t i = 0; i < CY_TEST_COUNT(rates); i++) {
        cy_test_read_config(&c, NULL, &rates[i].option, 1, CY_TEST_OPTION, NULL);
        assert_int_equal(cy_config_lr_schedule(&c, 10).kind, rates[i].kind);
    }
    for (size_t i = 0; i < CY_TEST_COUNT(engines); i++) {
        char option[64];
        snprintf(option, sizeof(option), "distributed.pp_engine=%s", engines[i]);
        cy_test_read_config(&c, NULL, &(const char *){option}, 1, CY_TEST_OPTION, NULL);
        assert_string_equal(cy_pipeline_engine_name(cy_config_schedule(&c).engine), engines[i]);
    }
}

static const cy_test_refusal lists_of_stages_and_sources_cases[] = {
    {"distributed.pp_layers=[]",
        "distributed.pp_layers = []: a list of 1 to 256 whole numbers is wanted\n"},
    {"distributed.pp_layers=[0]", NULL},
    {"distributed.pp_layers=[65536]", NULL},
    {"distributed.pp_layers=[65537]",
        "distributed.pp_layers = [65537]: a list of 1 to 256 whole numbers is wanted\n"},
    {"distributed.pp_layers=[-1]",
        "distributed.pp_layers = [-1]: a list of 1 to 256 whole numbers is wanted\n"},
    {"distributed.pp_layers=[1.0]",
        "distributed.pp_layers = [1.0]: a list of 1 to 256 whole numbers is wanted\n"},
    {"distributed.pp_layers=[2, '1']",
        "distributed.pp_layers = [2,\"1\"]: a list of 1 to 256 whole numbers is wanted\n"},
    {"distributed.pp_layers=3",
        "distributed.pp_layers = 3: a list of 1 to 256 whole numbers is wanted\n"
        "  as in --distributed.pp_layers='[3,1]'\n"},
    {"distributed.pp_layers=3,1",
        "distributed.pp_layers = \"3,1\": a list of 1 to 256 whole numbers is wanted\n"
        "  as in --distributed.pp_layers='[3,1]'\n"},
    {"distributed.pp_layers={}",
        "distributed.pp_layers = {}: a list of 1 to 256 whole numbers is wanted\n"
        "  as in --distributed.pp_layers='[3,1]'\n"},
    {"dataset.name=", NULL},
    {"dataset.name=a", NULL},
    {"dataset.name=[]",
        "dataset.name = []: a path, or a list of 1 to 64 {\"path\", \"weight\"}, is wanted\n"},
    {"dataset.name=[3]", "dataset.name = 3: {\"path\": text, \"weight\": number} is wanted\n"},
    {"dataset.name=['a']", NULL},
    {"dataset.name=[{'path': 3}]",
        "dataset.name = {\"path\":3}: {\"path\": text, \"weight\": number} is wanted\n"},
    {"dataset.name=[{'path': 'a', 'weight': null}]", NULL}, // the same as absent
    {"dataset.name=[{'path': 'a', 'more': null}]",
        "dataset.name = {\"path\":\"a\",\"more\":null}: {\"path\": text, \"weight\": number} is "
        "wanted\n"},
    {"dataset.name=[{'path': 'a', 'weight': '1'}]",
        "dataset.name = {\"path\":\"a\",\"weight\":\"1\"}: {\"path\": text, \"weight\": number} is "
        "wanted\n"},
    {"dataset.name=[{'path': 'a', 'weight': 0}]",
        "dataset.name = {\"path\":\"a\",\"weight\":0}: a weight from above 0 to 1e30 is wanted\n"},
    {"dataset.name=[{'path': 'a', 'weight': 1e-9}]", NULL},
    {"dataset.name=[{'path': 'a', 'more': 1}]",
        "dataset.name = {\"path\":\"a\",\"more\":1}: {\"path\": text, \"weight\": number} is "
        "wanted\n"},
    {"dataset.name=[{'path': 'a', 'weight': 1, 'more': 1}]",
        "dataset.name = {\"path\":\"a\",\"weight\":1,\"more\":1}: {\"path\": text, \"weight\": "
        "number} is wanted\n"},
    {"dataset.name=[{'weight': 1}]",
        "dataset.name = {\"weight\":1}: {\"path\": text, \"weight\": number} is wanted\n"},
};

static void lists_of_stages_and_sources(void **state)
{
    (void)state;
    cy_test_refusals(lists_of_stages_and_sources_cases,
        CY_TEST_COUNT(lists_of_stages_and_sources_cases), CY_TEST_OPTION);
}

static const cy_test_refusal names_and_their_parts_cases[] = {
    {"model.name", "--model.name: --section.key=value is wanted\n"},
    {"model", "--model: --section.key=value is wanted\n"},
    {"=1", "--=1: --section.key=value is wanted\n"},
    {"model.=1", "--model.=1: --section.key=value is wanted\n"},
    {"model=1", "--model=1: --section.key=value is wanted\n"},
    {".name=1",
        ": no such section\n"
        "  the sections are distributed, model, training, dataset, checkpoint, logging, "
        "environment\n"},
    {"nonsense.name=1",
        "nonsense: no such section\n"
        "  the sections are distributed, model, training, dataset, checkpoint, logging, "
        "environment\n"},
    {"modle.name=1",
        "modle: no such section\n"
        "  did you mean model?\n"},
    {"model.nme=x",
        "model.nme: no such key\n"
        "  did you mean model.name?\n"},
    {"model.name-or-path=x",
        "model.name_or_path: no such key\n"
        "  'cyclotron config show --keys' lists what there is\n"},
    {"model.xyzzyxyzzy=1",
        "model.xyzzyxyzzy: no such key\n"
        "  'cyclotron config show --keys' lists what there is\n"},
    {"training.tp_sizes=2",
        "training.tp_sizes: no such key\n  did you mean distributed.tp_size?\n"},
    {"training.tp-size=2",
        "training.tp_size: no such key\n"
        "  did you mean distributed.tp_size?\n"},
    {"training.vocabsize=2",
        "training.vocabsize: no such key\n"
        "  did you mean model.vocab_size?\n"},
    {"checkpoint.sequence_length=3",
        "checkpoint.sequence_length: no such key\n"
        "  did you mean training.seq_length?\n"},
    {"logging.run_name=\xff", "logging.run_name: the value is not UTF-8\n"},
    {"distributed.tp_size=\xff", "distributed.tp_size: the value is not UTF-8\n"},
};

static void names_and_their_parts(void **state)
{
    (void)state;
    cy_test_refusals(
        names_and_their_parts_cases, CY_TEST_COUNT(names_and_their_parts_cases), CY_TEST_OPTION);
}

static const cy_test_refusal values_of_another_type_cases[] = {
    {"{'training': {'lr_schedule': 3}}",
        "training.lr_schedule = 3: one of constant, linear, cosine, wsd is wanted\n"},
    {"{'model': {'dtype': 3}}", "model.dtype = 3: one of bf16, fp16, fp32, fp64 is wanted\n"},
    {"{'model': {'name': 3}}", "model.name = 3: a text is wanted\n"},
    {"{'dataset': {'name': 3}}",
        "dataset.name = 3: a path, or a list of 1 to 64 {\"path\", \"weight\"}, is wanted\n"},
    {"{'dataset': {'name': {'path': 'a'}}}",
        "dataset.name = {\"path\":\"a\"}: a path, or a list of 1 to 64 {\"path\", \"weight\"}, is "
        "wanted\n"},
    {"{'environment': {'FLASH_ATTEN': '1 '}}",
        "environment.FLASH_ATTEN = \"1 \": 0 or 1 is wanted\n"},
    {"{'environment': {'FLASH_ATTEN': 'yes'}}",
        "environment.FLASH_ATTEN = \"yes\": 0 or 1 is wanted\n"},
    {"{'environment': {'OMP_NUM_THREADS': true}}",
        "environment.OMP_NUM_THREADS = true: a whole number from 1 to 4096 is wanted\n"},
    {"{'environment': {'OMP_NUM_THREADS': 2, 'HF_TOKEN': 3, 'TOKENIZERS_PARALLELISM': []}}", NULL},
    {"{'model': null}", NULL},
    {"{'modelx': null}",
        "modelx: no such section\n"
        "  did you mean model?\n"},
    {"{'model': []}", "model: an object of keys is wanted\n"},
    {"[1]", "test.json: an object of sections is wanted\n"},
};

static void values_of_another_type(void **state)
{
    (void)state;
    cy_test_refusals(
        values_of_another_type_cases, CY_TEST_COUNT(values_of_another_type_cases), CY_TEST_FILE);
}

// A text of `length` letters behind the beginning of an option.
static void long_option(char *text, const char *beginning, int length)
{
    const size_t before = strlen(beginning);
    memcpy(text, beginning, before);
    memset(text + before, 'a', (size_t)length);
    text[before + (size_t)length] = '\0';
}

static void texts_at_their_longest(void **state)
{
    (void)state;
    static const struct {
        const char *beginning;
        int longest;
    } cases[] = {
        {"model.model_type=", 31},
        {"logging.run_name=", 255},
        {"model.name=", 1023},
        {"dataset.name=", 1023},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        cy_config config;
        char text[1100], wanted[256];
        const char *const option = text;
        const int name_length = (int)strcspn(cases[i].beginning, "=");
        long_option(text, cases[i].beginning, cases[i].longest);
        cy_test_read_config(&config, NULL, &option, 1, CY_TEST_FILE, NULL);
        long_option(text, cases[i].beginning, cases[i].longest + 1);
        snprintf(wanted, sizeof(wanted), "%.*s = \"%.60s...\": %d bytes, at most %d are taken\n",
            name_length, text, strchr(text, '=') + 1, cases[i].longest + 1, cases[i].longest);
        cy_test_read_config(&config, NULL, &option, 1, CY_TEST_OPTION, wanted);
    }
}

// Names of 63 bytes are looked up, longer ones are no names; values are shown up to 120 bytes.
static void long_names_and_values(void **state)
{
    (void)state;
    cy_config config;
    char text[300], wanted[500];
    const char *const option = text;
    for (int length = 63; length <= 64; length++) {
        snprintf(text, sizeof(text), "model.%0*d=1", length, 7);
        if (length == 63) {
            snprintf(wanted, sizeof(wanted),
                "model.%063d: no such key\n  'cyclotron config show --keys' lists what there is\n",
                7);
        } else {
            snprintf(wanted, sizeof(wanted), "--%s: --section.key=value is wanted\n", text);
        }
        cy_test_read_config(&config, NULL, &option, 1, CY_TEST_OPTION, wanted);
        snprintf(text, sizeof(text), "%0*d.name=1", length, 7);
        if (length == 63) {
            snprintf(wanted, sizeof(wanted),
                "%063d: no such section\n  the sections are distributed, model, training, "
                "dataset, checkpoint, logging, environment\n",
                7);
        } else {
            snprintf(wanted, sizeof(wanted), "--%s: --section.key=value is wanted\n", text);
        }
        cy_test_read_config(&config, NULL, &option, 1, CY_TEST_OPTION, wanted);
    }
    for (int length = 118; length <= 119; length++) { // with its quotes 120 and 121
        snprintf(text, sizeof(text), "distributed.tp_size=%0*dx", length - 1, 0);
        snprintf(wanted, sizeof(wanted),
            "distributed.tp_size = \"%s%s: a whole number from 1 to "
            "65536 is wanted\n",
            strchr(text, '=') + 1, length == 118 ? "\"" : "...");
        cy_test_read_config(&config, NULL, &option, 1, CY_TEST_OPTION, wanted);
    }
}

// Goes on with a list: `count` times the item, and its end.
static void add_items(char *list, size_t bytes, const char *item, int count)
{
    size_t length = strlen(list);
    for (int i = 0; i <= count && length < bytes; i++) {
        const char *words = i < count ? item : "]";
        length += (size_t)snprintf(list + length, bytes - length, "%s", words);
    }
    assert_true(length < bytes);
}

static void many_stages_and_sources(void **state)
{
    (void)state;
    for (int more = 0; more <= 1; more++) {
        cy_config config;
        char stages[1024] = "distributed.pp_layers=[1", sources[1024] = "dataset.name=['a'";
        const char *const both[] = {stages, sources};
        add_items(stages, sizeof(stages), ",1", 255 + more);
        add_items(sources, sizeof(sources), ",'a'", 63 + more);
        if (more == 1) {
            char wanted[700];
            snprintf(wanted, sizeof(wanted),
                "distributed.pp_layers = %.120s...: a list of 1 to 256 whole numbers is wanted\n"
                "dataset.name = %s...: a path, or a list of 1 to 64 {\"path\", \"weight\"}, is "
                "wanted\n",
                strchr(stages, '=') + 1,
                "[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
                "\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
                "\"a\",\"a\",\"a\",\"a\"");
            cy_test_read_config(&config, NULL, both, 2, CY_TEST_OPTION, wanted);
            continue;
        }
        cy_test_read_config(&config, NULL, both, 2, CY_TEST_OPTION, NULL);
        assert_int_equal(config.distributed.pp_layer_count, 256);
        assert_int_equal(config.distributed.pp_layers[255], 1);
        assert_int_equal(config.dataset.source_count, 64);
        assert_string_equal(config.dataset.sources[63].path, "a");
    }
}

static void what_taken_values_come_to(void **state)
{
    (void)state;
    cy_config c;
    const char *const options[] = {"environment.OMP_NUM_THREADS=1e1", "environment.FLASH_ATTEN=1",
        "training.seed=9223372036854775807", "training.warmup_steps=9007199254740992.0",
        "model.tie_word_embeddings=true", "model.dtype=float64", "distributed.pp_layers=[0,65536]",
        "dataset.name=[{'path': 'a', 'weight': 1e-9}, {'path': 'b'}, 'c']",
        "distributed.tp_size=2.0"};
    cy_test_read_config(&c, NULL, options, CY_TEST_COUNT(options), CY_TEST_FILE, NULL);
    assert_int_equal(c.environment.omp_num_threads, 10);
    assert_int_equal(c.environment.flash_atten, CY_CONFIG_TRUE);
    assert_int_equal(c.training.seed, INT64_MAX);
    assert_int_equal(c.training.warmup_steps, (int64_t)1 << 53);
    assert_int_equal(c.model.tie_word_embeddings, CY_CONFIG_TRUE);
    assert_int_equal(c.model.dtype, CY_F64);
    assert_int_equal(c.distributed.tp_size, 2);
    assert_int_equal(c.distributed.pp_layer_count, 2);
    assert_int_equal(c.distributed.pp_layers[0], 0);
    assert_int_equal(c.distributed.pp_layers[1], 65536);
    assert_int_equal(c.dataset.source_count, 3);
    assert_true(c.dataset.sources[0].weight == 1e-9);
    assert_true(c.dataset.sources[1].weight == 1 && c.dataset.sources[2].weight == 1);

    static const struct {
        const char *json;
        cy_config_flag flag;
    } flags[] = {{"0", CY_CONFIG_FALSE}, {"1", CY_CONFIG_TRUE}, {"\"0\"", CY_CONFIG_FALSE},
        {"\"1\"", CY_CONFIG_TRUE}, {"true", CY_CONFIG_TRUE}, {"false", CY_CONFIG_FALSE},
        {"null", CY_CONFIG_ABSENT}};
    for (size_t i = 0; i < CY_TEST_COUNT(flags); i++) {
        char text[64];
        snprintf(text, sizeof(text), "{'environment': {'FLASH_ATTEN': %s}}", flags[i].json);
        cy_test_read_config(&c, text, NULL, 0, CY_TEST_FILE, NULL);
        assert_int_equal(c.environment.flash_atten, flags[i].flag);
    }
    cy_test_read_config(&c, "{'dataset': {'name': [{'path': 'a', 'weight': 0}, 'b', 3, 'c']}}",
        NULL, 0, CY_TEST_FILE,
        "dataset.name = {\"path\":\"a\",\"weight\":0}: a weight from above 0 to 1e30 is wanted\n"
        "dataset.name = 3: {\"path\": text, \"weight\": number} is wanted\n");
    assert_int_equal(c.dataset.source_count, 2);
    assert_string_equal(c.dataset.sources[1].path, "c");
    const char *const broken = "model.dtype=two\nlines\rthree";
    cy_test_read_config(&c, NULL, &broken, 1, CY_TEST_FILE,
        "model.dtype = \"two\\nlines\\rthree\": one of bf16, fp16, fp32, fp64 is wanted\n");
    const char *const names = "mo\ndel.na\rme=1";
    cy_test_read_config(
        &c, NULL, &names, 1, CY_TEST_FILE, "mo del: no such section\n  did you mean model?\n");
}

// null is the same as leaving a key out, whatever was there before.
static void null_is_the_default(void **state)
{
    (void)state;
    cy_config defaults, c;
    cy_text wanted = {0}, given = {0};
    char options[128][64];
    const char *list[128];
    int count;
    const cy_key *keys = cy_config_keys(&count);
    cy_config_defaults(&defaults);
    CY_CHECK_OK(cy_config_to_json(&wanted, &defaults));
    memset(&c, 0x5a, sizeof(c));
    for (int i = 0; i < count; i++) {
        snprintf(options[i], sizeof(options[i]), "%s.%s=null", keys[i].section, keys[i].name);
        list[i] = options[i];
    }
    cy_test_read_config(&c,
        "{'model': {'name': 'x', 'num_hidden_layers': 3, 'hidden_size': 8,"
        " 'rope_theta': 5, 'tie_word_embeddings': true, 'dtype': 'fp16',"
        " 'rope_scaling': {'rope_type': 'linear', 'factor': 2}},"
        " 'training': {'lr_schedule': 'wsd', 'strict': true, 'seed': 1},"
        " 'distributed': {'pp_layers': [1], 'rank_order': 'x'},"
        " 'dataset': {'name': ['a'], 'num_workers': 2}}",
        list, count, CY_TEST_FILE, NULL);
    CY_CHECK_OK(cy_config_to_json(&given, &c));
    assert_string_equal(given.bytes, wanted.bytes);
    assert_int_equal(c.model.has_rope_scaling, false);
    assert_int_equal(c.dataset.num_workers, -1);
    assert_int_equal(c.model.num_hidden_layers, 0);
    cy_text_free(&wanted);
    cy_text_free(&given);
}

static void numbers_in_their_fewest_digits(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } cases[] = {
        {0, "0"},
        {-0.0, "-0.0"},
        {1, "1"},
        {-3, "-3"},
        {999999999999999, "999999999999999"},
        {-999999999999999, "-999999999999999"},
        {1e14, "100000000000000"},
        {1e15, "1e+15"},
        {-1e15, "-1e+15"},
        {1234567890123456, "1234567890123456"},
        {0.5, "0.5"},
        {3e-4, "0.0003"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {123456.789, "123456.789"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        cy_text json = {0};
        CY_CHECK_OK(cy_config_json_number(&json, cases[i].number));
        assert_string_equal(json.bytes, cases[i].text);
        cy_text_free(&json);
    }
}

// One value as it is written.
static void written(const char *option, const char *section, const char *name, const char *wanted)
{
    cy_config c;
    cy_text json = {0};
    cy_test_read_config(&c, NULL, &option, 1, CY_TEST_FILE, NULL);
    CY_CHECK_OK(cy_key_write(&json, &c, cy_config_key(section, name)));
    assert_string_equal(json.bytes, wanted);
    cy_text_free(&json);
}

static const struct {
    const char *option, *section, *name, *wanted;
} writings[] = {
    {"dataset.name=", "dataset", "name", "null"},
    {"dataset.name=a", "dataset", "name", "\"a\""},
    {"dataset.name=['a']", "dataset", "name", "\"a\""},
    {"dataset.name=[{'path': 'a', 'weight': 1}]", "dataset", "name", "\"a\""},
    {"dataset.name=[{'path': 'a', 'weight': 0.5}]", "dataset", "name",
        "[{\"path\": \"a\", \"weight\": 0.5}]"},
    {"dataset.name=['a', 'b']", "dataset", "name", "[{\"path\": \"a\"}, {\"path\": \"b\"}]"},
    {"dataset.name=['a', {'path': 'b', 'weight': 2}]", "dataset", "name",
        "[{\"path\": \"a\", \"weight\": 1}, {\"path\": \"b\", \"weight\": 2}]"},
    {"distributed.pp_layers=null", "distributed", "pp_layers", "null"},
    {"distributed.pp_layers=[3]", "distributed", "pp_layers", "[3]"},
    {"distributed.pp_layers=[3,0,2]", "distributed", "pp_layers", "[3, 0, 2]"},
    {"distributed.tp_size=1", "distributed", "tp_size", "1"},
    {"distributed.topk_warmup_steps=null", "distributed", "topk_warmup_steps", "-1"},
    {"model.head_dim=null", "model", "head_dim", "null"},
    {"model.head_dim=1", "model", "head_dim", "1"},
    {"model.sliding_window=null", "model", "sliding_window", "null"},
    {"model.sliding_window=0", "model", "sliding_window", "0"},
    {"model.rope_theta=null", "model", "rope_theta", "null"},
    {"model.rope_theta=0.5", "model", "rope_theta", "0.5"},
    {"training.learning_rate=0", "training", "learning_rate", "0"},
    {"model.tie_word_embeddings=null", "model", "tie_word_embeddings", "null"},
    {"model.tie_word_embeddings=true", "model", "tie_word_embeddings", "true"},
    {"model.tie_word_embeddings=false", "model", "tie_word_embeddings", "false"},
    {"training.strict=true", "training", "strict", "true"},
    {"training.strict=false", "training", "strict", "false"},
    {"training.lr_schedule=constant", "training", "lr_schedule", "\"constant\""},
    {"training.lr_schedule=cosine", "training", "lr_schedule", "\"cosine\""},
    {"training.lr_schedule=wsd", "training", "lr_schedule", "\"wsd\""},
    {"logging.run_name=a", "logging", "run_name", "\"a\""},
    {"logging.run_name=null", "logging", "run_name", "null"},
    {"logging.run_name=a'b", "logging", "run_name", "\"a\\\"b\""},
    {"model.dtype=float16", "model", "dtype", "\"fp16\""},
    {"environment.HF_TOKEN=x", "environment", "HF_TOKEN", "null"},
    {"model.rope_scaling=null", "model", "rope_scaling", "null"},
    {"model.rope_scaling={'type': 'linear', 'factor': 2}", "model", "rope_scaling",
        "{\"rope_type\": \"linear\", \"factor\": 2}"},
    {"model.rope_scaling={'rope_type': 'default'}", "model", "rope_scaling",
        "{\"rope_type\": \"default\"}"},
    {"model.rope_scaling={'rope_type': 'dynamic', 'factor': 2.5}", "model", "rope_scaling",
        "{\"rope_type\": \"dynamic\", \"factor\": 2.5}"},
    {"model.rope_scaling={'rope_type': 'yarn', 'factor': 4, 'beta_slow': 2,"
     " 'original_max_position_embeddings': 64}",
        "model", "rope_scaling",
        "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 32, \"beta_slow\": 2, "
        "\"original_max_position_embeddings\": 64}"},
    {"model.rope_scaling={'rope_type': 'yarn', 'factor': 4, 'attention_factor': 1.5}", "model",
        "rope_scaling",
        "{\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 32, \"beta_slow\": 1, "
        "\"attention_factor\": 1.5}"},
    {"model.rope_scaling={'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 1, "
     "\"high_freq_factor\": 4}",
        "model", "rope_scaling",
        "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
        "\"high_freq_factor\": 4}"},
};

static void values_as_they_are_written(void **state)
{
    (void)state;
    for (size_t i = 0; i < CY_TEST_COUNT(writings); i++)
        written(writings[i].option, writings[i].section, writings[i].name, writings[i].wanted);
}

// An option makes the file's other key of the same thing as if it were absent, and only that one.
static void options_win_over_the_other_word(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        int threads, omp, flash, head_dim, accumulation, batch;
    } cases[] = {
        {"training.seed=1", 2, 3, CY_CONFIG_FALSE, 4, 5, 6},
        {"distributed.threads_per_rank=7", 7, 0, CY_CONFIG_FALSE, 4, 5, 6},
        {"environment.OMP_NUM_THREADS=7", 0, 7, CY_CONFIG_FALSE, 4, 5, 6},
        {"model.use_flash_attention=true", 2, 3, CY_CONFIG_ABSENT, 4, 5, 6},
        {"model.use-flash-attention=true", 2, 3, CY_CONFIG_ABSENT, 4, 5, 6},
        {"model.hidden_size=7", 2, 3, CY_CONFIG_FALSE, 0, 5, 6},
        {"model.num_attention_heads=7", 2, 3, CY_CONFIG_FALSE, 0, 5, 6},
        {"training.global_batch_size=7", 2, 3, CY_CONFIG_FALSE, 4, 0, 7},
        {"training.gradient_accumulation_steps=7", 2, 3, CY_CONFIG_FALSE, 4, 7, 0},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        cy_config c;
        cy_test_read_config(&c,
            "{'distributed': {'threads_per_rank': 2}, 'model': {'head_dim': 4},"
            " 'environment': {'OMP_NUM_THREADS': 3, 'FLASH_ATTEN': 0},"
            " 'training': {'gradient_accumulation_steps': 5, 'global_batch_size': 6}}",
            &cases[i].option, 1, CY_TEST_FILE, NULL);
        assert_int_equal(c.distributed.threads_per_rank, cases[i].threads);
        assert_int_equal(c.environment.omp_num_threads, cases[i].omp);
        assert_int_equal(c.environment.flash_atten, cases[i].flash);
        assert_int_equal(c.model.head_dim, cases[i].head_dim);
        assert_int_equal(c.training.gradient_accumulation_steps, cases[i].accumulation);
        assert_int_equal(c.training.global_batch_size, cases[i].batch);
    }
}

// A value is written into its own field and no other.
static void neighbours_stay(void **state)
{
    (void)state;
    static const char *const options[] = {"distributed.tp_overlap=true",
        "distributed.sequence_keep_inputs=true", "distributed.sequence_parallel=true",
        "model.attention_bias=true", "model.tie_word_embeddings=true", "model.use_fused_adam=true",
        "model.use_flash_attention=true"};
    cy_config c;
    for (int order = 0; order < 2; order++) {
        const char *list[CY_TEST_COUNT(options)];
        for (size_t i = 0; i < CY_TEST_COUNT(options); i++)
            list[i] = options[order == 0 ? i : CY_TEST_COUNT(options) - 1 - i];
        cy_test_read_config(&c, NULL, list, CY_TEST_COUNT(options), CY_TEST_OPTION, NULL);
        assert_true(c.distributed.tp_overlap && c.distributed.sequence_keep_inputs);
        assert_true(c.distributed.sequence_parallel);
        assert_int_equal(c.model.attention_bias, CY_CONFIG_TRUE);
        assert_int_equal(c.model.tie_word_embeddings, CY_CONFIG_TRUE);
        assert_true(c.model.use_fused_adam && c.model.use_flash_attention);
    }
    char text[1100];
    const char *const option = text;
    long_option(text, "dataset.name=", 1024);
    char wanted[200];
    snprintf(wanted, sizeof(wanted),
        "dataset.name = \"%.60s...\": 1024 bytes, at most 1023 are taken\n", strchr(text, '=') + 1);
    cy_test_read_config(&c, NULL, &option, 1, CY_TEST_OPTION, wanted);
    assert_int_equal(c.dataset.source_count, 0);
}

// The accumulation is written unless the global batch fixes it.
static void either_batch_or_accumulation_is_written(void **state)
{
    (void)state;
    static const struct {
        const char *option, *wanted;
    } cases[] = {
        {"training.gradient_accumulation_steps=5",
            "\n        \"gradient_accumulation_steps\": 5,\n        \"global_batch_size\": null,"},
        {"training.global_batch_size=1",
            "\n        \"gradient_accumulation_steps\": null,\n        \"global_batch_size\": 1,"},
    };
    for (size_t i = 0; i < CY_TEST_COUNT(cases); i++) {
        static const char beginning[] = "{\n    \"distributed\": {\n        \"tp_size\": 1,\n";
        cy_config c;
        cy_text json = {0};
        cy_test_read_config(&c, NULL, &cases[i].option, 1, CY_TEST_OPTION, NULL);
        if (i == 1) c.training.gradient_accumulation_steps = 1; // as resolving does
        CY_CHECK_OK(cy_config_to_json(&json, &c));
        assert_memory_equal(json.bytes, beginning, sizeof(beginning) - 1);
        assert_non_null(strstr(json.bytes, cases[i].wanted));
        cy_text_free(&json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_ends),
        cmocka_unit_test(flags_and_spoken_numbers),
        cmocka_unit_test(words_and_the_nearest_one),
        cmocka_unit_test(each_word_has_its_value),
        cmocka_unit_test(words_of_other_parts),
        cmocka_unit_test(lists_of_stages_and_sources),
        cmocka_unit_test(names_and_their_parts),
        cmocka_unit_test(values_of_another_type),
        cmocka_unit_test(texts_at_their_longest),
        cmocka_unit_test(long_names_and_values),
        cmocka_unit_test(many_stages_and_sources),
        cmocka_unit_test(what_taken_values_come_to),
        cmocka_unit_test(null_is_the_default),
        cmocka_unit_test(numbers_in_their_fewest_digits),
        cmocka_unit_test(values_as_they_are_written),
        cmocka_unit_test(options_win_over_the_other_word),
        cmocka_unit_test(neighbours_stay),
        cmocka_unit_test(either_batch_or_accumulation_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
