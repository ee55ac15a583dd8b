// What contradicts itself in a configuration is refused with its numbers and with sizes that would
// do; what is right passes.

#include "support/support.h"

#include "base/file.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

typedef struct verdict {
    cy_status status;
    int count;
    char lines[8192];
} verdict;

static verdict judge_on(const char *text, cy_config_purpose purpose, cy_config_machine machine)
{
    verdict v = {0};
    cy_config config;
    cy_config_errors errors = {0};
    v.status = cy_config_read(&config, &errors, text, strlen(text), "t", NULL, 0);
    if (v.status == CY_OK) v.status = cy_config_resolve(&config, &errors);
    if (v.status == CY_OK) v.status = cy_config_check(&config, &errors, purpose, &machine);
    v.count = errors.count;
    snprintf(v.lines, sizeof(v.lines), "%s", errors.count > 0 ? errors.lines.bytes : "");
    cy_config_errors_free(&errors);
    return v;
}

static verdict judge(const char *text)
{
    return judge_on(text, CY_CONFIG_FOR_SHAPE, (cy_config_machine){.cores = 2});
}

static void passes(const char *text)
{
    const verdict v = judge(text);
    if (v.status == CY_OK) return;
    print_error("%s\nwas refused with:\n%s%s\n", text, v.lines, cy_error_text());
    fail();
}

static void expect_lines(const char *text, const verdict *v, const char *wanted)
{
    if (v->status == CY_ERR_REQUEST && strstr(v->lines, wanted) != NULL) return;
    print_error("%s\nwas judged with:\n%swanted: %s\n", text, v->lines, wanted);
    fail();
}

static void refuses(const char *text, const char *wanted)
{
    const verdict v = judge(text);
    expect_lines(text, &v, wanted);
}

// tiny: 2 layers, hidden 64, 4 heads, 2 kv heads, ffn 160; seq_length 1024.
#define TINY(more) "{\"model\": {\"name\": \"tiny\"}, " more "}"

static void tensor_parallel(void **state)
{
    (void)state;
    refuses(TINY("\"distributed\": {\"tp_size\": 2, \"sequence_keep_inputs\": true}"),
        "distributed.sequence_keep_inputs = true: inputs are gathered with "
        "distributed.sequence_parallel only\n");
    passes(TINY("\"distributed\": {\"tp_size\": 2, \"sequence_keep_inputs\": true, "
                "\"sequence_parallel\": true}"));
    passes(TINY("\"distributed\": {\"tp_size\": 2}"));
    passes(TINY("\"distributed\": {\"tp_size\": 4}")); // 2 kv heads, each on two ranks
    refuses(TINY("\"distributed\": {\"tp_size\": 3}"),
        "distributed.tp_size = 3: does not divide model.num_attention_heads 4\n"
        "distributed.tp_size = 3: model.num_key_value_heads 2 is neither a multiple nor a divisor "
        "of it\n"
        "distributed.tp_size = 3: does not divide model.intermediate_size 160\n"
        "  tp_size 2 or 4 would do\n");
    refuses(TINY("\"distributed\": {\"tp_size\": 8}"), "  tp_size 4 would do\n");
    refuses(
        "{\"model\": {\"name\": \"tiny\", \"vocab_size\": 3}, \"distributed\": {\"tp_size\": 4}}",
        "distributed.tp_size = 4: more than model.vocab_size 3\n  tp_size 2 would do\n");
    // The advice fits all three sizes, not only the one that was complained about.
    refuses("{\"model\": {\"name\": \"tiny\", \"num_attention_heads\": 8, \"intermediate_size\": 6,"
            " \"num_key_value_heads\": 8}, \"distributed\": {\"tp_size\": 4}}",
        "does not divide model.intermediate_size 6\n  tp_size 2 would do\n");
}

static void model(void **state)
{
    (void)state;
    refuses("{\"model\": {\"name\": \"tiny\", \"num_key_value_heads\": 3}}",
        "model.num_key_value_heads = 3: does not divide model.num_attention_heads 4\n"
        "  num_key_value_heads 2 or 4 would do\n");
    refuses("{\"model\": {\"name\": \"tiny\", \"head_dim\": 15}}", "it must be even");
    // What kernels hold on the stack.
    passes("{\"model\": {\"name\": \"tiny\", \"head_dim\": 512}}");
    refuses("{\"model\": {\"name\": \"tiny\", \"head_dim\": 514}}", "a whole number from 1 to 512");
    refuses("{\"model\": {\"name\": \"tiny\", \"hidden_size\": 2056}}",
        "model.head_dim = 514: heads have at most 512\n"
        "  more num_attention_heads of hidden_size 2056 would do");
    refuses("{\"model\": {\"name\": \"tiny\", \"max_position_embeddings\": 512}}",
        "training.seq_length = 1024: longer than model.max_position_embeddings 512");
}

static void context_parallel(void **state)
{
    (void)state;
    passes(TINY("\"distributed\": {\"cp_size\": 8}"));
    refuses(TINY("\"distributed\": {\"cp_size\": 2}, \"training\": {\"seq_length\": 1022}"),
        "training.seq_length = 1022: 2 x cp_size 2 (zigzag) = 4 pieces do not divide it\n"
        "  seq_length 1020 or 1024 would do\n");
    passes(TINY("\"distributed\": {\"cp_size\": 2, \"cp_layout\": \"contiguous\"},"
                " \"training\": {\"seq_length\": 1022}"));
    refuses(TINY("\"distributed\": {\"cp_size\": 2, \"tp_size\": 2, \"sequence_parallel\": true},"
                 " \"training\": {\"seq_length\": 1020}"),
        "2 x cp_size 2 (zigzag) x tp_size 2 = 8 pieces do not divide it");
    passes(TINY("\"distributed\": {\"cp_size\": 2, \"tp_size\": 2, \"cp_style\": \"ulysses\"}"));
    refuses(TINY("\"distributed\": {\"cp_size\": 4, \"tp_size\": 2, \"cp_style\": \"ulysses\"}"),
        "cp_size 4 x tp_size 2 = 8 does not divide model.num_attention_heads 4\n"
        "  cp_size 2 would do, or cp_style ring, which takes any number of heads\n");
    refuses(TINY("\"distributed\": {\"cp_size\": 3, \"cp_style\": \"ulysses\"},"
                 " \"training\": {\"seq_length\": 1020}"),
        "  cp_size 2 or 4 would do, or cp_style ring, which takes any number of heads\n");
    refuses("{\"model\": {\"name\": \"tiny\", \"num_attention_heads\": 6, \"hidden_size\": 48,"
            " \"num_key_value_heads\": 2}, \"distributed\": {\"cp_size\": 3,"
            " \"cp_style\": \"ulysses\"}, \"training\": {\"seq_length\": 1020}}",
        "distributed.cp_style = \"ulysses\": model.num_key_value_heads 2 is neither a multiple nor "
        "a divisor of cp_size 3 x tp_size 1 = 3\n");
}

static void pipeline(void **state)
{
    (void)state;
    passes(TINY("\"distributed\": {\"pp_size\": 2}"));
    refuses(TINY("\"distributed\": {\"pp_size\": 4}"),
        "model.num_hidden_layers = 2: fewer than pp_size 4 x pp_chunks 1 = 4\n"
        "  pp_size 2 would do\n");
    refuses(TINY("\"distributed\": {\"pp_size\": 2, \"pp_layers\": [2]}"),
        "distributed.pp_layers: 1 entries, pp_size 2 x pp_chunks 1 = 2 are wanted");
    refuses(TINY("\"distributed\": {\"pp_size\": 2, \"pp_layers\": [2, 1]}"),
        "distributed.pp_layers: 3 layers in all, model.num_hidden_layers is 2");
    refuses(TINY("\"distributed\": {\"pp_size\": 2, \"pp_layers\": [2, 0]}"), "without layers");
    refuses(TINY("\"distributed\": {\"pp_chunks\": 2}"),
        "1f1b takes 1 chunk a stage, not 2\n"
        "  the engines with chunks are");
    refuses(TINY("\"distributed\": {\"pp_chunks\": 3, \"pp_engine\": \"zero_bubble\"},"
                 " \"training\": {\"gradient_accumulation_steps\": 6}"),
        "zero_bubble takes 1 chunk a stage (ZB-H1) or 2 (ZB-V), not 3");
    refuses(TINY("\"distributed\": {\"pp_engine\": \"csv\"}"), "pp_schedule names no file");
    refuses(TINY("\"distributed\": {\"pp_engine\": \"csv\", \"pp_schedule\": \"/no/such.csv\"}"),
        "/no/such.csv");
    refuses(TINY("\"distributed\": {\"pp_schedule\": \"a.csv\"}"), "only pp_engine csv reads it");
    refuses(TINY("\"distributed\": {\"pp_size\": 2, \"pp_chunks\": 2, \"pp_engine\": "
                 "\"interleaved\"}"),
        "model.num_hidden_layers = 2: fewer than pp_size 2 x pp_chunks 2 = 4");
    // One stage runs 1f1b.
    passes(TINY("\"distributed\": {\"pp_engine\": \"zero_bubble\"}, "
                "\"training\": {\"recompute\": \"full\"}"));
    static const char *const recompute[] = {"selective", "full"};
    for (int i = 0; i < 2; i++) {
        char text[256];
        snprintf(text, sizeof(text),
            TINY("\"distributed\": {\"pp_size\": 2, \"pp_engine\": \"zero_bubble\"}, "
                 "\"training\": {\"recompute\": \"%s\"}"),
            recompute[i]);
        refuses(text,
            "training.recompute with pp_engine zero_bubble: a backward pass in two parts keeps "
            "what "
            "recomputation would make again\n  recompute none, or another pp_engine\n");
    }
}

// A configuration with a schedule file for two stages and two microbatches.
static void with_schedule(char text[600], const char *schedule, const char *recompute)
{
    char folder[256], path[300];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/own.csv", folder);
    CY_CHECK_OK(cy_file_write(path, schedule, strlen(schedule)));
    snprintf(text, 600,
        TINY("\"distributed\": {\"pp_size\": 2, \"pp_engine\": \"csv\", \"pp_schedule\": \"%s\"}, "
             "\"training\": {\"gradient_accumulation_steps\": 2, \"recompute\": \"%s\"}"),
        path, recompute);
}

// A schedule file that is refused in the words of the checker, or taken.
static void refuses_schedule(const char *schedule, const char *wanted)
{
    char text[600];
    with_schedule(text, schedule, "none");
    if (wanted == NULL) {
        passes(text);
        return;
    }
    refuses(text, "distributed: pp_size 2, pp_chunks 1, gradient_accumulation_steps 2: ");
    refuses(text, wanted);
}

static void schedules_of_users(void **state)
{
    (void)state;
    refuses_schedule("F0,F1,B0,B1\nF0,B0,F1,B1\n", NULL);
    refuses_schedule("F0,B0,F1,B1\nF1,B1,F0,B0\n",
        "the schedule has a cycle: rank 0 waits at B0 for rank 1, rank 1 waits at F1 for rank 0");
    refuses_schedule("F0,B0\nF0,B0\n", "rank 0: F1 ");
    refuses_schedule("F0,F1,F2,B0,B1,B2\nF0,F1,F2,B0,B1,B2\n",
        "own.csv:1: \"F2\" is of a microbatch that there is not");
    static const char *const undone[][3] = {{"RC0,", "", "RC0"}, {"OF0,FE0,", "", "OF0"},
        {"GA,", "", "GA"}, {"", ",RE", "RE"}, {"", ",RE,OP", "RE"}};
    for (int i = 0; i < 10; i++) {
        char schedule[64], wanted[64], text[600];
        const int rank = i % 2;
        const char *before[2] = {"", ""}, *after[2] = {"", ""};
        before[rank] = undone[i / 2][0];
        after[rank] = undone[i / 2][1];
        snprintf(schedule, sizeof(schedule), "F0,%sF1,B0,B1%s\nF0,%sB0,F1,B1%s\n", before[0],
            after[0], before[1], after[1]);
        snprintf(wanted, sizeof(wanted), "own.csv:%d: \"%s\" is not an action of a schedule",
            rank + 1, undone[i / 2][2]);
        with_schedule(text, schedule, "none");
        refuses(text, wanted);
    }
    // One backward pass in two parts, on either rank.
    static const char *const in_parts[] = {
        "F0,F1,I0,W0,B1\nF0,B0,F1,B1\n", "F0,F1,B0,B1\nF0,I0,W0,F1,B1\n"};
    for (int i = 0; i < 2; i++) {
        char text[600];
        refuses_schedule(in_parts[i], NULL);
        with_schedule(text, in_parts[i], "full");
        refuses(text, "training.recompute with pp_engine csv: a backward pass in two parts");
    }
    refuses_schedule("F0,F1,B0,B1\n", "1 lines of actions for 2 stages");
    refuses_schedule("B0,F0,F1,B1\nF0,B0,F1,B1\n", "rank 0: F0 comes after B0");
    refuses(TINY("\"distributed\": {\"pp_size\": 2}, "
                 "\"training\": {\"global_batch_size\": 1000000}"),
        "1f1b: 1000000 microbatches, there must be 1 to ");
}

static void the_rest_of_distributed(void **state)
{
    (void)state;
    refuses(TINY("\"distributed\": {\"ep_size\": 2}"),
        "distributed.ep_size = 2: the model has no experts");
    passes(TINY("\"distributed\": {\"rank_order\": \"dp,pp,cp,tp\"}"));
    refuses(TINY("\"distributed\": {\"rank_order\": \"tp,cp,pp,tp\"}"), "once each, are wanted");
    refuses(TINY("\"distributed\": {\"rank_order\": \"tp.cp,pp,dp\"}"), "once each, are wanted");
    refuses(TINY("\"distributed\": {\"rank_order\": \"tp,dp\"}"), "once each, are wanted");
    passes(TINY("\"distributed\": {\"algorithm\": \"doubling\"}"));
    refuses(TINY("\"distributed\": {\"algorithm\": \"rings\"}"),
        "distributed.algorithm = \"rings\": there is none\n");
    refuses(TINY("\"distributed\": {\"dp_reduce\": \"naive\", \"zero_stage\": 1}"),
        "zero_stage 1 works on buckets");
    refuses(TINY("\"distributed\": {\"compression\": \"topk\"}, \"training\": {\"strict\": true}"),
        "training.strict = true: compressed gradients");
    refuses(TINY("\"distributed\": {\"backend\": \"self\", \"dp_size\": 2}"),
        "distributed.backend = \"self\": one rank, 2 are asked for");
    refuses(TINY("\"distributed\": {\"device\": \"cuda\"}"),
        "distributed.device = \"cuda\": this build has no GPUs\n  device cpu\n");
    passes(TINY("\"distributed\": {\"device\": \"test\"}"));
    refuses(TINY("\"distributed\": {\"use_cpu\": false, \"backend\": \"nccl\"}"),
        "distributed.use_cpu = false: ");
    refuses(TINY("\"logging\": {\"use_wandb\": true}"), "logging.tensorboard true");
    passes(TINY("\"distributed\": {\"backend\": \"gloo\"}"));
    refuses(TINY("\"distributed\": {\"compression\": \"topk\", \"zero_stage\": 1}"),
        "distributed.compression: zero_stage 1 keeps a part of the gradients; what compression "
        "keeps back is of the whole\n");
    refuses(TINY("\"distributed\": {\"compression\": \"int8\", \"dp_reduce\": \"naive\"}"),
        "distributed.dp_reduce = \"naive\": it is there to compare with");
    refuses("{\"model\": {\"name\": \"tiny\", \"dtype\": \"fp16\"},"
            " \"distributed\": {\"compression\": \"topk\"}}",
        "would be in units of fp16's loss scale, which changes\n  compression int8, or model.dtype "
        "bf16\n");
    refuses(TINY("\"distributed\": {\"threads_per_rank\": 2},"
                 " \"environment\": {\"OMP_NUM_THREADS\": \"3\"}"),
        "environment.OMP_NUM_THREADS = 3: distributed.threads_per_rank says 2\n");
}

#define STRICT(model, training, distributed)                                                       \
    "{\"model\": {\"name\": \"tiny\", " model "}, \"training\": {\"strict\": true, " training      \
    "}, \"distributed\": {" distributed "}}"

static void strict_cuts(void **state)
{
    (void)state;
    passes(STRICT("\"dtype\": \"fp32\"", "\"seq_length\": 1024", "\"cp_size\": 8"));
    passes(STRICT("\"dtype\": \"bf16\"", "\"seq_length\": 96", "\"dp_size\": 3"));
    passes(STRICT(
        "\"vocab_size\": 512, \"intermediate_size\": 256", "\"seq_length\": 64", "\"tp_size\": 4"));
    refuses(STRICT("\"dtype\": \"fp16\"", "\"seq_length\": 64", "\"dp_size\": 1"),
        "training.strict = true: model.dtype \"fp16\" has no strict mode");
    refuses(STRICT("\"dtype\": \"fp32\"", "\"seq_length\": 80", "\"dp_size\": 1"),
        "training.seq_length 80 is no multiple of 32: blocks of 32 tokens, 1 pieces of a sequence\n"
        "  seq_length 64 would do\n");
    refuses(STRICT("\"dtype\": \"fp32\"", "\"seq_length\": 31", "\"dp_size\": 1"),
        "training.seq_length 31 is no multiple of 32: blocks of 32 tokens, 1 pieces of a sequence\n"
        "  seq_length 32 would do\n");
    refuses(STRICT("\"dtype\": \"fp32\"", "\"seq_length\": 64", "\"cp_size\": 2"),
        "training.seq_length 64 is no multiple of 128: blocks of 32 tokens, 4 pieces of a "
        "sequence\n  cp_layout contiguous would do\n");
    refuses(STRICT("\"dtype\": \"fp32\"", "\"seq_length\": 224", "\"cp_size\": 2"),
        "sequence\n  seq_length 128 would do\n");
    refuses(STRICT("\"intermediate_size\": 72", "\"seq_length\": 64", "\"tp_size\": 2"),
        "model.intermediate_size 72 is cut at 36 by tp_size 2, and its blocks are 8\n"
        "  tp_size 1 would do for this\n");
    refuses(STRICT("\"intermediate_size\": 36", "\"seq_length\": 64", "\"tp_size\": 2"),
        "model.intermediate_size 36 is cut at 18 by tp_size 2, and its blocks are 32\n"
        "  tp_size 1 would do for this\n");
    refuses(STRICT("\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"hidden_size\": 64, "
                   "\"intermediate_size\": 48",
                "\"seq_length\": 64", "\"tp_size\": 4"),
        "model.intermediate_size 48 is cut at 12 by tp_size 4, and its blocks are 16\n"
        "  tp_size 3 would do for this\n");
    passes(STRICT(
        "\"vocab_size\": 515, \"intermediate_size\": 256", "\"seq_length\": 64", "\"tp_size\": 2"));
    passes(STRICT("\"vocab_size\": 50257, \"intermediate_size\": 256", "\"seq_length\": 64",
        "\"tp_size\": 4"));
    refuses(STRICT("\"vocab_size\": 129, \"num_attention_heads\": 128, \"hidden_size\": 256, "
                   "\"num_key_value_heads\": 128, \"intermediate_size\": 4096",
                "\"seq_length\": 64", "\"tp_size\": 128"),
        "model.vocab_size 129 has 65 blocks of 2, tp_size is 128");
    passes(STRICT("\"vocab_size\": 129, \"num_attention_heads\": 65, \"hidden_size\": 130, "
                  "\"num_key_value_heads\": 65, \"intermediate_size\": 2080",
        "\"seq_length\": 64", "\"tp_size\": 65"));
    passes(STRICT("\"intermediate_size\": 36", "\"seq_length\": 64", "\"tp_size\": 1"));
    refuses(STRICT("\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"hidden_size\": 64, "
                   "\"intermediate_size\": 80",
                "\"seq_length\": 64", "\"tp_size\": 4"),
        "model.intermediate_size 80 is cut at 20 by tp_size 4, and its blocks are 16\n"
        "  tp_size 1 would do for this\n");
    passes(STRICT("\"dtype\": \"fp32\"", "\"seq_length\": 1024, \"micro_batch_size\": 4096",
        "\"dp_size\": 1"));
    passes(STRICT("\"vocab_size\": 4194304", "\"seq_length\": 64", "\"dp_size\": 1"));
    refuses(STRICT("\"dtype\": \"fp32\"", "\"seq_length\": 1024, \"micro_batch_size\": 4097",
                "\"dp_size\": 1"),
        "4195328 tokens in a global batch, at most 4194304");
    refuses(STRICT("\"vocab_size\": 4194305", "\"seq_length\": 64", "\"dp_size\": 1"),
        "training.strict = true: model.vocab_size 4194305, at most 4194304");
}

static void world(void **state)
{
    (void)state;
    const char *text = TINY("\"distributed\": {\"tp_size\": 2, \"dp_size\": 2}");
    const cy_config_machine six = {.cores = 2, .world = 6, .under_mpi = true};
    const verdict v = judge_on(text, CY_CONFIG_FOR_SHAPE, six);
    expect_lines(text, &v,
        "distributed: tp_size 2 x cp_size 1 x pp_size 1 x dp_size 2 = 4 ranks, 6 "
        "processes were started\n"
        "  start 4 or a divisor of it, or dp_size 3 would do\n");
    passes(TINY("\"distributed\": {\"dp_size\": 1024, \"backend\": \"threads\"}"));
    passes(TINY("\"distributed\": {\"dp_size\": 1025}")); // as processes of MPI
    refuses(TINY("\"distributed\": {\"dp_size\": 1025, \"backend\": \"threads\"}"),
        "distributed.backend = \"threads\": at most 1024 ranks, 1025 are asked for\n");
    const char *under_mpi = TINY("\"distributed\": {\"dp_size\": 2, \"backend\": \"mpi\"}");
    const verdict alone = judge(under_mpi);
    if (strstr(alone.lines, "made without MPI") != NULL) return; // what follows needs it
    expect_lines(under_mpi, &alone,
        "distributed.backend = \"mpi\": not started by mpirun or srun\n"
        "  mpirun -n 2 cyclotron train ..., or backend threads\n");
    const cy_config_machine four = {.cores = 2, .world = 4, .under_mpi = true};
    assert_int_equal(judge_on(text, CY_CONFIG_FOR_SHAPE, four).status, CY_OK);
    const cy_config_machine two = {.cores = 2, .world = 2, .under_mpi = true};
    assert_int_equal(judge_on(text, CY_CONFIG_FOR_SHAPE, two).status, CY_OK);
}

static void what_a_run_needs(void **state)
{
    (void)state;
    const cy_config_machine machine = {.cores = 2};
    verdict v = judge_on(TINY("\"training\": {}"), CY_CONFIG_FOR_TRAIN, machine);
    expect_lines("no data", &v, "dataset.name: absent");
    expect_lines("no end", &v, "training: total_train_steps and max_tokens are both absent");
    assert_int_equal(v.count, 2);

    v = judge_on("{\"dataset\": {\"name\": \"roneneldan/TinyStories\", \"subset_name\": \"en\","
                 " \"split\": \"test\", \"num_proc\": 32, \"num_workers\": 9,"
                 " \"tokenizer\": \"/no/t.json\"},"
                 " \"training\": {\"total_train_steps\": 10, \"warmup_steps\": 20,"
                 "  \"min_learning_rate\": 1, \"lr_decay_steps\": 5},"
                 " \"checkpoint\": {\"save_frequency\": 3, \"resume\": \"auto\","
                 "  \"load_path\": \"/no/such\"},"
                 " \"logging\": {\"eval_frequency\": 1, \"tensorboard\": true},"
                 " \"model\": {\"name\": \"tiny\", \"init\": \"pretrained\"}}",
        CY_CONFIG_FOR_TRAIN, machine);
    static const char *const wanted[] = {
        ("dataset.name = \"roneneldan/TinyStories\": no such file or folder\n"
         "  nothing is downloaded while training"),
        "dataset.subset_name = \"en\"",
        "dataset.split = \"test\"",
        "dataset.num_proc = 32",
        "dataset.num_workers = 9",
        "dataset.tokenizer = \"/no/t.json\": no such file",
        "training.min_learning_rate = 1: above learning_rate 0.0003",
        "training.lr_decay_steps = 5: lr_schedule constant has no decay",
        "checkpoint.save_frequency = 3: save_dir names no folder",
        "checkpoint.resume = \"auto\": save_dir names no folder",
        "checkpoint.load_path = \"/no/such\": no such folder",
        "logging.eval_frequency = 1: no data is kept for evaluation",
        "logging.tensorboard = true: run_dir names no folder",
        "model.init = \"pretrained\": model.name = \"tiny\" is no folder with weights",
        "model.init = \"pretrained\": checkpoint.load_path loads others",
    };
    const int count = (int)(sizeof(wanted) / sizeof(wanted[0]));
    for (int i = 0; i < count; i++)
        expect_lines("a bad run", &v, wanted[i]);
    assert_int_equal(v.count, count);
}

static void expert_parallel(void **state)
{
    (void)state;
    refuses(TINY("\"distributed\": {\"ep_size\": 2}"),
        "distributed.ep_size = 2: the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n");
    refuses(TINY("\"distributed\": {\"etp_size\": 2}"),
        "distributed.etp_size = 2: the model has no experts");
#define EXPERTS(model, distributed)                                                                \
    "{\"model\": {\"name\": \"tiny\", \"num_local_experts\": 6, " model                            \
    "}, \"distributed\": {" distributed "}}"
    refuses(EXPERTS("\"num_experts_per_tok\": 7", "\"tp_size\": 1"),
        "model.num_experts_per_tok = 7: from 1 to num_local_experts 6");
    refuses(EXPERTS("\"num_experts_per_tok\": 2", "\"dp_size\": 4, \"ep_size\": 3"),
        "distributed.ep_size = 3: ep_size x etp_size = 3 does not divide the 4 ranks (tp x cp x "
        "dp) of a stage");
    refuses(EXPERTS("\"num_experts_per_tok\": 2", "\"dp_size\": 4, \"ep_size\": 4"),
        "distributed.ep_size = 4: does not divide model.num_local_experts 6\n"
        "  ep_size 3 or 6 would do\n");
    refuses(EXPERTS("\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 18",
                "\"dp_size\": 4, \"etp_size\": 4"),
        "distributed.etp_size = 4: does not divide model.moe_intermediate_size 18");
    refuses(EXPERTS("\"num_experts_per_tok\": 2", "\"tp_size\": 1"),
        "model.num_local_experts = 6: this build trains dense models only");
}

static void names_of_models(void **state)
{
    (void)state;
    char folder[256], path[300], text[700];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/config.json", folder);
    CY_CHECK_OK(cy_file_write(path, "{\"model_type\": ", 15));
    snprintf(text, sizeof(text), "{\"model\": {\"name\": \"%s\"}}", folder);
    refuses(text, "/config.json");
    assert_int_equal(judge(text).count, 1); // of what a missing shape lacks nothing is said
    refuses(
        "{\"model\": {\"name\": \"nothing\"}}", "neither a folder with config.json nor a preset");
    assert_int_equal(judge("{\"model\": {\"name\": \"nothing\"}}").count, 1);
    refuses("{\"model\": {\"name\": \"tiny\", \"model_type\": \"gpt2\"}}",
        "model.model_type = \"gpt2\": one of llama, mistral, qwen2, qwen3, mixtral, qwen3_moe is "
        "wanted");
    snprintf(
        text, sizeof(text), "{\"model\": {\"name\": \"tiny\", \"model_type\": \"%0200d\"}}", 0);
    refuses(text, "...\": 200 bytes, at most 31 are taken");
}

static void paths_that_are_files(void **state)
{
    (void)state;
    char folder[256], path[300], text[1500];
    cy_test_folder(folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
    CY_CHECK_OK(cy_file_write(path, "text", 4));
    snprintf(text, sizeof(text),
        TINY("\"dataset\": {\"name\": \"%s\"}, \"training\": {\"total_train_steps\": 10},"
             " \"checkpoint\": {\"save_dir\": \"%s\", \"load_path\": \"%s\"},"
             " \"logging\": {\"run_dir\": \"%s\"}"),
        path, path, path, path);
    const verdict v = judge_on(text, CY_CONFIG_FOR_TRAIN, (cy_config_machine){.cores = 2});
    expect_lines(text, &v, "/file\": is there and is not a folder\ncheckpoint.load_path");
    expect_lines(text, &v,
        "/file\": is a file, not a folder\n"
        "  give a step's folder, or the save_dir that holds them\nlogging.run_dir = ");
    expect_lines(text, &v, "dataset.tokenizer: absent, and dataset.name is text\n");
    assert_int_equal(v.count, 4);
}

static void schedules_of_rates(void **state)
{
    (void)state;
    char folder[256], text[1500];
    cy_test_folder(folder, sizeof(folder));
    static const struct {
        const char *training, *wanted;
    } cases[] = {
        {"\"lr_schedule\": \"wsd\", \"warmup_steps\": 6, \"lr_decay_steps\": 5",
            "training.lr_decay_steps = 5: with warmup_steps 6 more than the 10 steps of the run"},
        {"\"lr_schedule\": \"cosine\", \"warmup_steps\": 6, \"lr_decay_steps\": 6",
            "training.lr_decay_steps = 6: not after warmup_steps 6"},
    };
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text),
            TINY("\"dataset\": {\"name\": \"%s\"}, \"checkpoint\": {\"load\": \"weights\"},"
                 " \"training\": {\"total_train_steps\": 10, %s}"),
            folder, cases[i].training);
        const verdict v = judge_on(text, CY_CONFIG_FOR_TRAIN, (cy_config_machine){.cores = 2});
        expect_lines(text, &v, cases[i].wanted);
        expect_lines(text, &v, "checkpoint.load = \"weights\": load_path names no checkpoint");
        assert_int_equal(v.count, 2);
    }
}

static void a_run_that_is_right(void **state)
{
    (void)state;
    char folder[256];
    char text[2048];
    cy_test_folder(folder, sizeof(folder));
    snprintf(text, sizeof(text),
        TINY("\"dataset\": {\"name\": \"%s\", \"subset_name\": null, \"num_workers\": 0,"
             " \"num_proc\": 1, \"split\": \"train\"}, \"training\": {\"max_tokens\": 100000},"
             " \"checkpoint\": {\"save_dir\": \"%s/ckpt\", \"save_frequency\": 300,"
             "  \"load_path\": \"\"}"),
        folder, folder);
    const verdict v = judge_on(text, CY_CONFIG_FOR_TRAIN, (cy_config_machine){.cores = 2});
    if (v.status != CY_OK) print_error("%s", v.lines);
    assert_int_equal(v.status, CY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel),
        cmocka_unit_test(model),
        cmocka_unit_test(context_parallel),
        cmocka_unit_test(pipeline),
        cmocka_unit_test(schedules_of_users),
        cmocka_unit_test(the_rest_of_distributed),
        cmocka_unit_test(strict_cuts),
        cmocka_unit_test(world),
        cmocka_unit_test(what_a_run_needs),
        cmocka_unit_test(expert_parallel),
        cmocka_unit_test(names_of_models),
        cmocka_unit_test(paths_that_are_files),
        cmocka_unit_test(schedules_of_rates),
        cmocka_unit_test(a_run_that_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
