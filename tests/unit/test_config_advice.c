// What contradicts itself in a configuration, at the last size that works and the first that does
// not: every refusal is compared as a whole, with its numbers and its advice.

#include "support/configs.h"
#include "support/support.h"

#include "base/file.h"
#include "build_info.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// tiny: 2 layers, hidden 64, 4 heads, 2 kv heads, ffn 160; seq_length 1024.
static const cy_test_refusal tensor_parallel_sizes_cases[] = {
    {"{'model': {'name': 'tiny'}, 'distributed': {'tp_size': 3}}",
        "distributed.tp_size = 3: does not divide model.num_attention_heads 4\n"
        "distributed.tp_size = 3: model.num_key_value_heads 2 is neither a multiple nor a divisor "
        "of it\n"
        "distributed.tp_size = 3: does not divide model.intermediate_size 160\n"
        "  tp_size 2 or 4 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'tp_size': 5}}",
        "distributed.tp_size = 5: does not divide model.num_attention_heads 4\n"
        "distributed.tp_size = 5: model.num_key_value_heads 2 is neither a multiple nor a divisor "
        "of it\n"
        "  tp_size 4 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'tp_size': 8}}",
        "distributed.tp_size = 8: does not divide model.num_attention_heads 4\n"
        "  tp_size 4 would do\n"},
    {"{'model': {'name': 'tiny', 'intermediate_size': 161}, 'distributed': {'tp_size': 2}}",
        "distributed.tp_size = 2: does not divide model.intermediate_size 161\n"
        "  tp_size 1 would do\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 1, 'num_key_value_heads': 1}, "
     "'distributed': {'tp_size': 2}}",
        "distributed.tp_size = 2: does not divide model.num_attention_heads 1\n"
        "  tp_size 1 would do\n"},
    {"{'model': {'name': 'tiny', 'vocab_size': 4}, 'distributed': {'tp_size': 4}}", NULL},
    {"{'model': {'name': 'tiny', 'vocab_size': 3}, 'distributed': {'tp_size': 4}}",
        "distributed.tp_size = 4: more than model.vocab_size 3\n"
        "  tp_size 2 would do\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 12, 'num_key_value_heads': 4, "
     "'intermediate_size': 36, 'hidden_size': 48}, 'distributed': {'tp_size': 5}}",
        "distributed.tp_size = 5: does not divide model.num_attention_heads 12\n"
        "distributed.tp_size = 5: model.num_key_value_heads 4 is neither a multiple nor a divisor "
        "of it\n"
        "distributed.tp_size = 5: does not divide model.intermediate_size 36\n"
        "  tp_size 4 or 12 would do\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 12, 'num_key_value_heads': 4, "
     "'intermediate_size': 36, 'hidden_size': 48}, 'distributed': {'tp_size': 9}}",
        "distributed.tp_size = 9: does not divide model.num_attention_heads 12\n"
        "distributed.tp_size = 9: model.num_key_value_heads 4 is neither a multiple nor a divisor "
        "of it\n"
        "  tp_size 4 or 12 would do\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 6, 'num_key_value_heads': 2, "
     "'intermediate_size': 36, 'hidden_size': 48}, 'distributed': {'tp_size': 6}}",
        NULL},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 6, 'num_key_value_heads': 2, "
     "'intermediate_size': 36, 'hidden_size': 48}, 'distributed': {'tp_size': 3}}",
        "distributed.tp_size = 3: model.num_key_value_heads 2 is neither a multiple nor a divisor "
        "of it\n"
        "  tp_size 2 or 6 would do\n"},
};

static void tensor_parallel_sizes(void **state)
{
    (void)state;
    cy_test_refusals(
        tensor_parallel_sizes_cases, CY_TEST_COUNT(tensor_parallel_sizes_cases), CY_TEST_CHECKED);
}

static const cy_test_refusal sizes_of_the_model_cases[] = {
    {"{'model': {'name': 'tiny', 'num_key_value_heads': 1}}", NULL},
    {"{'model': {'name': 'tiny', 'num_key_value_heads': 3}}",
        "model.num_key_value_heads = 3: does not divide model.num_attention_heads 4\n"
        "  num_key_value_heads 2 or 4 would do\n"},
    {"{'model': {'name': 'tiny', 'num_key_value_heads': 5}}",
        "model.num_key_value_heads = 5: does not divide model.num_attention_heads 4\n"
        "  num_key_value_heads 4 would do\n"},
    {"{'model': {'name': 'tiny', 'num_key_value_heads': 8}}",
        "model.num_key_value_heads = 8: does not divide model.num_attention_heads 4\n"
        "  num_key_value_heads 4 would do\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 12, 'num_key_value_heads': 5, "
     "'hidden_size': 48}}",
        "model.num_key_value_heads = 5: does not divide model.num_attention_heads 12\n"
        "  num_key_value_heads 4 or 6 would do\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 3, 'num_key_value_heads': 2, "
     "'hidden_size': 48}}",
        "model.num_key_value_heads = 2: does not divide model.num_attention_heads 3\n"
        "  num_key_value_heads 1 or 3 would do\n"},
    {"{'model': {'name': 'tiny', 'num_hidden_layers': 1, 'hidden_size': 1, 'intermediate_size': 1, "
     "'num_attention_heads': 1, 'num_key_value_heads': 1, 'head_dim': 2, 'vocab_size': 1}, "
     "'distributed': {'tp_size': 3}}",
        "distributed.tp_size = 3: does not divide model.num_attention_heads 1\n"
        "distributed.tp_size = 3: does not divide model.intermediate_size 1\n"
        "distributed.tp_size = 3: more than model.vocab_size 1\n"
        "  tp_size 1 would do\n"},
    {"{'model': {'name': 'tiny', 'head_dim': 15}}",
        "model.head_dim = 15: rotary positions turn pairs: it must be even\n"},
    {"{'model': {'name': 'tiny', 'head_dim': 1}}",
        "model.head_dim = 1: rotary positions turn pairs: it must be even\n"},
    {"{'model': {'name': 'tiny', 'head_dim': 2}}", NULL},
    {"{'model': {'name': 'tiny', 'max_position_embeddings': 1023}}",
        "training.seq_length = 1024: longer than model.max_position_embeddings 1023\n"
        "  leave max_position_embeddings out to have it follow\n"},
    {"{'model': {'name': 'tiny', 'max_position_embeddings': 1024}}", NULL},
};

static void sizes_of_the_model(void **state)
{
    (void)state;
    cy_test_refusals(
        sizes_of_the_model_cases, CY_TEST_COUNT(sizes_of_the_model_cases), CY_TEST_CHECKED);
}

static const cy_test_refusal pieces_of_a_sequence_cases[] = {
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2}, 'training': {'seq_length': 4}}",
        NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2}, 'training': {'seq_length': 3}}",
        "training.seq_length = 3: 2 x cp_size 2 (zigzag) = 4 pieces do not divide it\n"
        "  seq_length 4 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2}, 'training': {'seq_length': 5}}",
        "training.seq_length = 5: 2 x cp_size 2 (zigzag) = 4 pieces do not divide it\n"
        "  seq_length 4 or 8 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2, 'cp_layout': 'contiguous'}, "
     "'training': {'seq_length': 3}}",
        "training.seq_length = 3: cp_size 2 = 2 pieces do not divide it\n"
        "  seq_length 2 or 4 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2, 'tp_size': 2, 'cp_style': "
     "'ulysses'}, 'training': {'seq_length': 5}}",
        "training.seq_length = 5: cp_size 2 = 2 pieces do not divide it\n"
        "  seq_length 4 or 6 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'tp_size': 2, 'sequence_parallel': true}, "
     "'training': {'seq_length': 5}}",
        "training.seq_length = 5: cp_size 1 x tp_size 2 = 2 pieces do not divide it\n"
        "  seq_length 4 or 6 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2, 'tp_size': 2, 'sequence_parallel': "
     "true}, 'training': {'seq_length': 20}}",
        "training.seq_length = 20: 2 x cp_size 2 (zigzag) x tp_size 2 = 8 pieces do not divide it\n"
        "  seq_length 16 or 24 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'sequence_keep_inputs': true}}",
        "distributed.sequence_keep_inputs = true: inputs are gathered with "
        "distributed.sequence_parallel only\n"},
};

static void pieces_of_a_sequence(void **state)
{
    (void)state;
    cy_test_refusals(
        pieces_of_a_sequence_cases, CY_TEST_COUNT(pieces_of_a_sequence_cases), CY_TEST_CHECKED);
}

static const cy_test_refusal ulysses_sizes_cases[] = {
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 3, 'cp_style': 'ulysses'}, "
     "'training': {'seq_length': 12}}",
        "distributed.cp_style = \"ulysses\": cp_size 3 x tp_size 1 = 3 does not divide "
        "model.num_attention_heads 4\n"
        "  cp_size 2 or 4 would do, or cp_style ring, which takes any number of heads\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 8, 'cp_style': 'ulysses'}}",
        "distributed.cp_style = \"ulysses\": cp_size 8 x tp_size 1 = 8 does not divide "
        "model.num_attention_heads 4\n"
        "  cp_size 4 would do, or cp_style ring, which takes any number of heads\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 4, 'cp_style': 'ulysses'}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 4, 'tp_size': 2, 'cp_style': "
     "'ulysses'}}",
        "distributed.cp_style = \"ulysses\": cp_size 4 x tp_size 2 = 8 does not divide "
        "model.num_attention_heads 4\n"
        "  cp_size 2 would do, or cp_style ring, which takes any number of heads\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 5, 'tp_size': 4, 'cp_style': "
     "'ulysses'}, 'training': {'seq_length': 20}}",
        "distributed.cp_style = \"ulysses\": cp_size 5 x tp_size 4 = 20 does not divide "
        "model.num_attention_heads 4\n"
        "  cp_size 1 would do, or cp_style ring, which takes any number of heads\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 6, 'hidden_size': 48}, 'distributed': "
     "{'cp_size': 3, 'cp_style': 'ulysses'}, 'training': {'seq_length': 12}}",
        "distributed.cp_style = \"ulysses\": model.num_key_value_heads 2 is neither a multiple nor "
        "a divisor of cp_size 3 x tp_size 1 = 3\n"
        "  cp_size 2 or 6 would do, or cp_style ring, which takes any number of heads\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 12, 'hidden_size': 48, "
     "'num_key_value_heads': 4}, 'distributed': {'cp_size': 5, 'cp_style': 'ulysses'}, 'training': "
     "{'seq_length': 20}}",
        "distributed.cp_style = \"ulysses\": cp_size 5 x tp_size 1 = 5 does not divide "
        "model.num_attention_heads 12\n"
        "  cp_size 4 or 12 would do, or cp_style ring, which takes any number of heads\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 12, 'hidden_size': 48, "
     "'num_key_value_heads': 4}, 'distributed': {'cp_size': 3, 'cp_style': 'ulysses'}, 'training': "
     "{'seq_length': 12}}",
        "distributed.cp_style = \"ulysses\": model.num_key_value_heads 4 is neither a multiple nor "
        "a divisor of cp_size 3 x tp_size 1 = 3\n"
        "  cp_size 2 or 4 would do, or cp_style ring, which takes any number of heads\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 5, 'hidden_size': 50, "
     "'num_key_value_heads': 5}, 'distributed': {'cp_size': 2, 'cp_style': 'ulysses'}}",
        "distributed.cp_style = \"ulysses\": cp_size 2 x tp_size 1 = 2 does not divide "
        "model.num_attention_heads 5\n"
        "  cp_size 1 or 5 would do, or cp_style ring, which takes any number of heads\n"},
    {"{'model': {'name': 'tiny', 'num_attention_heads': 3, 'hidden_size': 48, "
     "'num_key_value_heads': 3}, 'distributed': {'tp_size': 2, 'cp_style': 'ulysses'}}",
        "distributed.tp_size = 2: does not divide model.num_attention_heads 3\n"
        "distributed.tp_size = 2: model.num_key_value_heads 3 is neither a multiple nor a divisor "
        "of it\n"
        "  tp_size 1 would do\n"},
};

static void ulysses_sizes(void **state)
{
    (void)state;
    cy_test_refusals(ulysses_sizes_cases, CY_TEST_COUNT(ulysses_sizes_cases), CY_TEST_CHECKED);
}

static const cy_test_refusal stages_and_their_layers_cases[] = {
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 3}}",
        "model.num_hidden_layers = 2: fewer than pp_size 3 x pp_chunks 1 = 3\n"
        "  pp_size 2 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_chunks': 2, 'pp_engine': "
     "'interleaved'}, 'training': {'gradient_accumulation_steps': 2}}",
        "model.num_hidden_layers = 2: fewer than pp_size 2 x pp_chunks 2 = 4\n"
        "  pp_size 1 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_chunks': 3, 'pp_engine': "
     "'interleaved'}, 'training': {'gradient_accumulation_steps': 2}}",
        "model.num_hidden_layers = 2: fewer than pp_size 2 x pp_chunks 3 = 6\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_layers': [1, 1]}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_layers': [2, 0]}}",
        "distributed.pp_layers: a stage without layers\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_layers': [0, 2]}}",
        "distributed.pp_layers: a stage without layers\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_layers': [2]}}",
        "distributed.pp_layers: 1 entries, pp_size 2 x pp_chunks 1 = 2 are wanted\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_layers': [1, 1, 1]}}",
        "distributed.pp_layers: 3 entries, pp_size 2 x pp_chunks 1 = 2 are wanted\n"
        "distributed.pp_layers: 3 layers in all, model.num_hidden_layers is 2\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_layers': [1, 2]}}",
        "distributed.pp_layers: 3 layers in all, model.num_hidden_layers is 2\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_chunks': 2}}",
        "distributed: pp_size 1, pp_chunks 2, gradient_accumulation_steps 1: 1f1b takes 1 chunk a "
        "stage, not 2\n"
        "  the engines with chunks are interleaved, and zero_bubble with 2\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_engine': 'csv'}}",
        "distributed.pp_engine = \"csv\": pp_schedule names no file\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_schedule': 'a.csv'}}",
        "distributed.pp_schedule = \"a.csv\": only pp_engine csv reads it\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_engine': 'csv', 'pp_schedule': "
     "'/no/such.csv'}}",
        "distributed: pp_size 1, pp_chunks 1, gradient_accumulation_steps 1: open /no/such.csv: No "
        "such file or directory\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_engine': 'csv', 'pp_schedule': 'x'}}",
        "distributed: pp_size 1, pp_chunks 1, gradient_accumulation_steps 1: open x: No such file "
        "or directory\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_schedule': 'x'}}",
        "distributed.pp_schedule = \"x\": only pp_engine csv reads it\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'pp_size': 2, 'pp_engine': 'zero_bubble'}, "
     "'training': {'recompute': 'full'}}",
        "training.recompute with pp_engine zero_bubble: a backward pass in two parts keeps what "
        "recomputation would make again\n"
        "  recompute none, or another pp_engine\n"},
};

static void stages_and_their_layers(void **state)
{
    (void)state;
    cy_test_refusals(stages_and_their_layers_cases, CY_TEST_COUNT(stages_and_their_layers_cases),
        CY_TEST_CHECKED);
}

static const cy_test_refusal orders_of_ranks_cases[] = {
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': 'dp,pp,cp,tp'}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': 'tp,cp,pp,tp'}}",
        "distributed.rank_order = \"tp,cp,pp,tp\": tp, cp, pp and dp, once each, are wanted\n"
        "  for example tp,cp,pp,dp\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': 'tp.cp,pp,dp'}}",
        "distributed.rank_order = \"tp.cp,pp,dp\": tp, cp, pp and dp, once each, are wanted\n"
        "  for example tp,cp,pp,dp\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': 'tp,cp.pp,dp'}}",
        "distributed.rank_order = \"tp,cp.pp,dp\": tp, cp, pp and dp, once each, are wanted\n"
        "  for example tp,cp,pp,dp\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': 'tp,cp,pp.dp'}}",
        "distributed.rank_order = \"tp,cp,pp.dp\": tp, cp, pp and dp, once each, are wanted\n"
        "  for example tp,cp,pp,dp\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': 'tp,cp,pp'}}",
        "distributed.rank_order = \"tp,cp,pp\": tp, cp, pp and dp, once each, are wanted\n"
        "  for example tp,cp,pp,dp\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': 'tp,cp,pp,dp,'}}",
        "distributed.rank_order = \"tp,cp,pp,dp,\": tp, cp, pp and dp, once each, are wanted\n"
        "  for example tp,cp,pp,dp\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': 'tp,cp,pp,ep'}}",
        "distributed.rank_order = \"tp,cp,pp,ep\": tp, cp, pp and dp, once each, are wanted\n"
        "  for example tp,cp,pp,dp\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'rank_order': ''}}",
        "distributed.rank_order = \"\": tp, cp, pp and dp, once each, are wanted\n"
        "  for example tp,cp,pp,dp\n"},
};

static void orders_of_ranks(void **state)
{
    (void)state;
    cy_test_refusals(orders_of_ranks_cases, CY_TEST_COUNT(orders_of_ranks_cases), CY_TEST_CHECKED);
}

static const cy_test_refusal ways_to_reduce_cases[] = {
    {"{'model': {'name': 'tiny'}, 'distributed': {'dp_reduce': 'naive', 'zero_stage': 1}}",
        "distributed.dp_reduce = \"naive\": zero_stage 1 works on buckets\n"
        "  dp_reduce bucketed, or zero_stage 0\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'dp_reduce': 'naive'}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'bucket_mb': 4, 'first_bucket_mb': 4}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'bucket_mb': 0.5}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'bucket_mb': 4, 'first_bucket_mb': 4.5}}",
        "distributed.first_bucket_mb = 4.5: the first bucket is larger than the others, of "
        "bucket_mb 4\n"
        "  first_bucket_mb of at most 4\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'compression': 'topk', 'zero_stage': 2}}",
        "distributed.compression: zero_stage 2 keeps a part of the gradients; what compression "
        "keeps back is of the whole\n"
        "  zero_stage 0, or compression none\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'compression': 'int8', 'dp_reduce': 'naive'}}",
        "distributed.dp_reduce = \"naive\": it is there to compare with and sends gradients as "
        "they are\n"
        "  dp_reduce bucketed, or compression none\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'compression': 'int8', 'dp_reduce': 'naive', "
     "'zero_stage': 3}}",
        "distributed.dp_reduce = \"naive\": zero_stage 3 works on buckets\n"
        "  dp_reduce bucketed, or zero_stage 0\n"
        "distributed.compression: zero_stage 3 keeps a part of the gradients; what compression "
        "keeps back is of the whole\n"
        "  zero_stage 0, or compression none\n"
        "distributed.dp_reduce = \"naive\": it is there to compare with and sends gradients as "
        "they are\n"
        "  dp_reduce bucketed, or compression none\n"},
    {"{'model': {'name': 'tiny', 'dtype': 'fp16'}, 'distributed': {'compression': 'topk'}}",
        "distributed.compression = \"topk\": what is kept back would be in units of fp16's loss "
        "scale, which changes\n"
        "  compression int8, or model.dtype bf16\n"},
    {"{'model': {'name': 'tiny', 'dtype': 'fp16'}, 'distributed': {'compression': 'int8'}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'compression': 'topk'}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'compression': 'int8'}, 'training': {'strict': "
     "true}}",
        "training.strict = true: compressed gradients depend on the mesh, strict ones do not\n"
        "  compression none\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'algorithm': 'rings'}}",
        "distributed.algorithm = \"rings\": there is none\n"
        "  auto, native, ring, tree, doubling, hierarchical or server\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'algorithm': 'hierarchical'}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'algorithm': 'auto'}}", NULL},
};

static void ways_to_reduce(void **state)
{
    (void)state;
    cy_test_refusals(ways_to_reduce_cases, CY_TEST_COUNT(ways_to_reduce_cases), CY_TEST_CHECKED);
}

static const cy_test_refusal sizes_of_experts_cases[] = {
    {"{'model': {'name': 'tiny'}, 'distributed': {'ep_size': 2}}",
        "distributed.ep_size = 2: the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'etp_size': 2}}",
        "distributed.etp_size = 2: the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'ep_size': 2, 'etp_size': 3}}",
        "distributed.ep_size = 2: the model has no experts\n"
        "  leave it out, or give model.num_local_experts\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6}}",
        "model.num_local_experts = 6: this build trains dense models only\n"
        "model.num_experts_per_tok = 0: from 1 to num_local_experts 6\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 1, 'num_experts_per_tok': 1}}",
        "model.num_local_experts = 1: this build trains dense models only\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 6}}",
        "model.num_local_experts = 6: this build trains dense models only\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 7}}",
        "model.num_local_experts = 6: this build trains dense models only\n"
        "model.num_experts_per_tok = 7: from 1 to num_local_experts 6\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 1}, 'distributed': "
     "{'dp_size': 4, 'ep_size': 4}}",
        "model.num_local_experts = 6: this build trains dense models only\n"
        "distributed.ep_size = 4: does not divide model.num_local_experts 6\n"
        "  ep_size 3 or 6 would do\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 1}, 'distributed': "
     "{'dp_size': 4, 'ep_size': 3}}",
        "model.num_local_experts = 6: this build trains dense models only\n"
        "distributed.ep_size = 3: ep_size x etp_size = 3 does not divide the 4 ranks (tp x cp x "
        "dp) of a stage\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 1, "
     "'moe_intermediate_size': 18}, 'distributed': {'dp_size': 2, 'cp_size': 2, 'tp_size': 2, "
     "'ep_size': 2, 'etp_size': 3}}",
        "model.num_local_experts = 6: this build trains dense models only\n"
        "distributed.ep_size = 2: ep_size x etp_size = 6 does not divide the 8 ranks (tp x cp x "
        "dp) of a stage\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 1, "
     "'moe_intermediate_size': 18}, 'distributed': {'dp_size': 3, 'cp_size': 2, 'ep_size': 6}}",
        "model.num_local_experts = 6: this build trains dense models only\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 1}, 'distributed': "
     "{'dp_size': 7, 'ep_size': 7}}",
        "model.num_local_experts = 6: this build trains dense models only\n"
        "distributed.ep_size = 7: does not divide model.num_local_experts 6\n"
        "  ep_size 6 would do\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 1}, 'distributed': "
     "{'dp_size': 6, 'ep_size': 2, 'etp_size': 3}}",
        "model.num_local_experts = 6: this build trains dense models only\n"
        "distributed.etp_size = 3: does not divide model.moe_intermediate_size 160\n"
        "  etp_size 2 or 4 would do\n"},
    {"{'model': {'name': 'tiny', 'num_local_experts': 6, 'num_experts_per_tok': 1, "
     "'moe_intermediate_size': 18}, 'distributed': {'dp_size': 4, 'etp_size': 4}}",
        "model.num_local_experts = 6: this build trains dense models only\n"
        "distributed.etp_size = 4: does not divide model.moe_intermediate_size 18\n"
        "  etp_size 3 or 6 would do\n"},
};

static void sizes_of_experts(void **state)
{
    (void)state;
    cy_test_refusals(
        sizes_of_experts_cases, CY_TEST_COUNT(sizes_of_experts_cases), CY_TEST_CHECKED);
}

static const cy_test_refusal what_this_build_cannot_do_cases[] = {
    {"{'model': {'name': 'tiny'}, 'distributed': {'use_cpu': false}}",
        "distributed.use_cpu = false: this build trains on the processor\n"
        "  use_cpu true\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'backend': 'nccl'}}",
        "distributed.backend = \"nccl\": this build has no GPUs\n"
        "  backend auto\n"},
    {"{'model': {'name': 'tiny'}, 'logging': {'use_wandb': true}}",
        "logging.use_wandb = true: nothing is sent anywhere\n"
        "  logging.tensorboard true writes event files; logging.run_dir has metrics.jsonl\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'backend': 'self'}}", NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'backend': 'self', 'dp_size': 2}}",
        "distributed.backend = \"self\": one rank, 2 are asked for\n"
        "  backend threads, or auto\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'backend': 'threads', 'dp_size': 2}}", NULL},
};

static void what_this_build_cannot_do(void **state)
{
    (void)state;
    cy_test_refusals(what_this_build_cannot_do_cases,
        CY_TEST_COUNT(what_this_build_cannot_do_cases), CY_TEST_CHECKED);
}

static const cy_test_refusal pieces_of_strict_sums_cases[] = {
    {"{'model': {'name': 'tiny'}, 'training': {'strict': true}}", NULL},
    {"{'model': {'name': 'tiny', 'dtype': 'fp16'}, 'training': {'strict': true}}",
        "training.strict = true: model.dtype \"fp16\" has no strict mode\n"
        "  model.dtype fp32 or bf16\n"},
    {"{'model': {'name': 'tiny', 'dtype': 'fp64'}, 'training': {'strict': true}}",
        "training.strict = true: model.dtype \"fp64\" has no strict mode\n"
        "  model.dtype fp32 or bf16\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2, 'cp_style': 'ulysses'}, "
     "'training': {'strict': true, 'seq_length': 96}}",
        "training.strict = true: training.seq_length 96 is no multiple of 64: blocks of 32 tokens, "
        "2 pieces of a sequence\n"
        "  seq_length 64 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2, 'cp_style': 'ulysses'}, "
     "'training': {'strict': true, 'seq_length': 64}}",
        NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2, 'cp_layout': 'contiguous'}, "
     "'training': {'strict': true, 'seq_length': 96}}",
        "training.strict = true: training.seq_length 96 is no multiple of 64: blocks of 32 tokens, "
        "2 pieces of a sequence\n"
        "  seq_length 64 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2, 'cp_layout': 'contiguous'}, "
     "'training': {'strict': true, 'seq_length': 64}}",
        NULL},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2}, 'training': {'strict': true, "
     "'seq_length': 96}}",
        "training.strict = true: training.seq_length 96 is no multiple of 128: blocks of 32 "
        "tokens, 4 pieces of a sequence\n"
        "  seq_length 128 would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2}, 'training': {'strict': true, "
     "'seq_length': 192}}",
        "training.strict = true: training.seq_length 192 is no multiple of 128: blocks of 32 "
        "tokens, 4 pieces of a sequence\n"
        "  cp_layout contiguous would do\n"},
    {"{'model': {'name': 'tiny'}, 'distributed': {'cp_size': 2}, 'training': {'strict': true, "
     "'seq_length': 128}}",
        NULL},
    {"{'model': {'name': 'tiny'}, 'training': {'strict': true, 'seq_length': 33}}",
        "training.strict = true: training.seq_length 33 is no multiple of 32: blocks of 32 tokens, "
        "1 pieces of a sequence\n"
        "  seq_length 32 would do\n"},
};

static void pieces_of_strict_sums(void **state)
{
    (void)state;
    cy_test_refusals(
        pieces_of_strict_sums_cases, CY_TEST_COUNT(pieces_of_strict_sums_cases), CY_TEST_CHECKED);
}

static const struct {
    int world;
    bool under_mpi;
    const char *distributed, *faults;
} machines[] = {
    {0, false, "'backend': 'self'", NULL},
    {1, true, "'backend': 'self'", NULL},
    {2, true, "'backend': 'self'",
        "distributed.backend = \"self\": 2 processes were started, and each would run all 1 ranks "
        "by itself\n"
        "  backend auto or mpi, or start one process\n"},
    {2, true, "'backend': 'threads', 'dp_size': 2",
        "distributed.backend = \"threads\": 2 processes were started, and each would run all 2 "
        "ranks by itself\n"
        "  backend auto or mpi, or start one process\n"},
    {2, false, "'backend': 'threads', 'dp_size': 2", NULL},
    {1, true, "'backend': 'mpi'", NULL},
    {0, false, "'backend': 'mpi'", NULL},
    {0, false, "'backend': 'mpi', 'dp_size': 2",
        "distributed.backend = \"mpi\": not started by mpirun or srun\n"
        "  mpirun -n 2 cyclotron train ..., or backend threads\n"},
    {2, true, "'backend': 'mpi'",
        "distributed: tp_size 1 x cp_size 1 x pp_size 1 x dp_size 1 = 1 ranks, 2 processes "
        "were started\n"
        "  start 1 or a divisor of it, or dp_size 2 would do\n"},
    {6, true, "'tp_size': 2, 'dp_size': 2",
        "distributed: tp_size 2 x cp_size 1 x pp_size 1 x dp_size 2 = 4 ranks, 6 processes "
        "were started\n"
        "  start 4 or a divisor of it, or dp_size 3 would do\n"},
    {5, true, "'tp_size': 2, 'dp_size': 2",
        "distributed: tp_size 2 x cp_size 1 x pp_size 1 x dp_size 2 = 4 ranks, 5 processes "
        "were started\n"
        "  start 4 or a divisor of it\n"},
    {4, true, "'tp_size': 2, 'dp_size': 2", NULL},
    {2, true, "'tp_size': 2, 'dp_size': 2", NULL}, // two threads in each process
    {1, true, "'tp_size': 2, 'dp_size': 2", NULL},
    {9, true, "'tp_size': 2, 'cp_size': 2, 'pp_size': 2, 'dp_size': 3",
        "distributed: tp_size 2 x cp_size 2 x pp_size 2 x dp_size 3 = 24 ranks, 9 processes "
        "were started\n"
        "  start 24 or a divisor of it\n"},
    {6, true, "'tp_size': 2, 'cp_size': 2, 'pp_size': 2, 'dp_size': 3", NULL},
    {24, true, "'tp_size': 2, 'cp_size': 2, 'pp_size': 2, 'dp_size': 3", NULL},
    {2, false, "", NULL},
};

static void processes_and_ranks(void **state)
{
    (void)state;
    if (!CY_HAVE_MPI) skip(); // other words then
    for (size_t i = 0; i < CY_TEST_COUNT(machines); i++) {
        const cy_config_machine machine = {
            .cores = 2, .world = machines[i].world, .under_mpi = machines[i].under_mpi};
        cy_config config;
        char text[256];
        snprintf(text, sizeof(text), "{'model': {'name': 'tiny'}, 'distributed': {%s}}",
            machines[i].distributed);
        cy_test_read_config_on(
            &config, text, NULL, 0, CY_TEST_CHECKED, machine, machines[i].faults);
    }
}

// Options over a run of 10 steps that is right, in a folder with shards/, text.txt, a.bin, b.idx,
// bin and tok.json.
static const struct {
    const char *options[3], *faults;
} runs[] = {
    {{NULL}, NULL},
    {{"training.total_train_steps=null"},
        "training: total_train_steps and max_tokens are both absent\n"
        "  give the step or the number of tokens at which training ends\n"},
    {{"training.total_train_steps=null", "training.max_tokens=1"}, NULL},
    {{"training.total_train_steps=0"},
        "training.total_train_steps = 0: a whole number of at least 1 is wanted\n"},
    {{"training.total_train_steps=null", "training.max_tokens=0"},
        "training.max_tokens = 0: a whole number of at least 1 is wanted\n"},
    {{"training.min_learning_rate=3e-4"}, NULL},
    {{"training.min_learning_rate=4e-4"},
        "training.min_learning_rate = 0.0004: above learning_rate 0.0003\n"},
    {{"training.lr_decay_steps=5"},
        "training.lr_decay_steps = 5: lr_schedule constant has no decay\n"},
    {{"training.lr_schedule=wsd", "training.lr_decay_steps=5", "training.warmup_steps=5"}, NULL},
    {{"training.lr_schedule=wsd", "training.lr_decay_steps=5", "training.warmup_steps=6"},
        "training.lr_decay_steps = 5: with warmup_steps 6 more than the 10 steps of the run\n"},
    {{"training.lr_schedule=wsd", "training.lr_decay_steps=11"},
        "training.lr_decay_steps = 11: with warmup_steps 0 more than the 10 steps of the run\n"},
    {{"training.lr_schedule=wsd", "training.lr_decay_steps=11", "training.total_train_steps=null"},
        "training: total_train_steps and max_tokens are both absent\n"
        "  give the step or the number of tokens at which training ends\n"},
    {{"training.lr_schedule=linear", "training.lr_decay_steps=6", "training.warmup_steps=6"},
        "training.lr_decay_steps = 6: not after warmup_steps 6\n"},
    {{"training.lr_schedule=cosine", "training.lr_decay_steps=7", "training.warmup_steps=6"}, NULL},
    {{"dataset.name="},
        "dataset.name: absent\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"dataset.name=text.txt"},
        "dataset.tokenizer: absent, and dataset.name is text\n"
        "  'cyclotron tokenizer train --vocab-size=N --out=tokenizer.json FILE' makes one\n"},
    {{"dataset.name=text.txt", "dataset.tokenizer=tok.json"}, NULL},
    {{"dataset.name=text.txt", "dataset.tokenizer=no.json"},
        "dataset.tokenizer = \"no.json\": no such file\n"},
    {{"dataset.name=a.bin"}, NULL},
    {{"dataset.name=b.idx"}, NULL},
    {{"dataset.name=ab"},
        "dataset.tokenizer: absent, and dataset.name is text\n"
        "  'cyclotron tokenizer train --vocab-size=N --out=tokenizer.json FILE' makes one\n"},
    {{"dataset.name=.bin"}, NULL},
    {{"dataset.name=bin"},
        "dataset.tokenizer: absent, and dataset.name is text\n"
        "  'cyclotron tokenizer train --vocab-size=N --out=tokenizer.json FILE' makes one\n"},
    {{"dataset.name=['text.txt', 'a.bin']"},
        "dataset.tokenizer: absent, and dataset.name is text\n"
        "  'cyclotron tokenizer train --vocab-size=N --out=tokenizer.json FILE' makes one\n"},
    {{"dataset.name=['a.bin', 'text.txt']"},
        "dataset.tokenizer: absent, and dataset.name is text\n"
        "  'cyclotron tokenizer train --vocab-size=N --out=tokenizer.json FILE' makes one\n"},
    {{"dataset.name=['a.bin', 'b.idx', 'shards']"}, NULL},
    {{"dataset.name=a/b"},
        "dataset.name = \"a/b\": no such file or folder\n"
        "  nothing is downloaded while training: save the text as .txt or .jsonl, then 'cyclotron "
        "data prepare --tokenizer=tokenizer.json --out=DIR FILE...', and give DIR\n"},
    {{"dataset.name=a/b.txt"},
        "dataset.name = \"a/b.txt\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"dataset.name=/no"},
        "dataset.name = \"/no\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"dataset.name=no/"},
        "dataset.name = \"no/\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"dataset.name=./no"},
        "dataset.name = \"./no\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"dataset.name=a/b/c"},
        "dataset.name = \"a/b/c\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"dataset.name=no"},
        "dataset.name = \"no\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"dataset.name=a.b/c"},
        "dataset.name = \"a.b/c\": no such file or folder\n"
        "  nothing is downloaded while training: save the text as .txt or .jsonl, then 'cyclotron "
        "data prepare --tokenizer=tokenizer.json --out=DIR FILE...', and give DIR\n"},
    {{"dataset.name=['no', 'x/y']"},
        "dataset.name = \"no\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"
        "dataset.name = \"x/y\": no such file or folder\n"
        "  nothing is downloaded while training: save the text as .txt or .jsonl, then 'cyclotron "
        "data prepare --tokenizer=tokenizer.json --out=DIR FILE...', and give DIR\n"},
    {{"dataset.split=train"}, NULL},
    {{"dataset.split=test"},
        "dataset.split = \"test\": local data has no splits\n"
        "  validation_fraction keeps the last part for evaluation\n"},
    {{"dataset.subset_name=en"},
        "dataset.subset_name = \"en\": local data has no subsets\n"
        "  give the subset's files or shards as dataset.name\n"},
    {{"dataset.num_proc=1"}, NULL},
    {{"dataset.num_proc=2"},
        "dataset.num_proc = 2: text is cut into tokens once, beforehand\n"
        "  'cyclotron data prepare --threads=N' does that; leave it out\n"},
    {{"dataset.num_proc=3"},
        "dataset.num_proc = 3: text is cut into tokens once, beforehand\n"
        "  'cyclotron data prepare --threads=N' does that; leave it out\n"},
    {{"dataset.num_proc=4"}, NULL},
    {{"dataset.num_proc=5"},
        "dataset.num_proc = 5: text is cut into tokens once, beforehand\n"
        "  'cyclotron data prepare --threads=N' does that; leave it out\n"},
    {{"dataset.num_workers=0"}, NULL},
    {{"dataset.num_workers=1"},
        "dataset.num_workers = 1: one thread of its own reads ahead\n"
        "  leave it out\n"},
    {{"dataset.num_workers=3"},
        "dataset.num_workers = 3: one thread of its own reads ahead\n"
        "  leave it out\n"},
    {{"dataset.num_workers=4"}, NULL},
    {{"dataset.num_workers=5"},
        "dataset.num_workers = 5: one thread of its own reads ahead\n"
        "  leave it out\n"},
    {{"checkpoint.save_frequency=1"}, "checkpoint.save_frequency = 1: save_dir names no folder\n"},
    {{"checkpoint.save_frequency=1", "checkpoint.save_dir=out"}, NULL},
    {{"checkpoint.resume=auto"}, "checkpoint.resume = \"auto\": save_dir names no folder\n"},
    {{"checkpoint.resume=auto", "checkpoint.save_dir=out"}, NULL},
    {{"checkpoint.save_dir=ab"}, "checkpoint.save_dir = \"ab\": is there and is not a folder\n"},
    {{"checkpoint.save_dir=shards"}, NULL},
    {{"checkpoint.load_path=no"}, "checkpoint.load_path = \"no\": no such folder\n"},
    {{"checkpoint.load_path=ab"},
        "checkpoint.load_path = \"ab\": is a file, not a folder\n"
        "  give a step's folder, or the save_dir that holds them\n"},
    {{"checkpoint.load_path=shards"}, NULL},
    {{"checkpoint.load=weights"}, "checkpoint.load = \"weights\": load_path names no checkpoint\n"},
    {{"checkpoint.load=weights", "checkpoint.load_path=shards"}, NULL},
    {{"model.init=pretrained"},
        "model.init = \"pretrained\": model.name = \"tiny\" is no folder with weights\n"
        "  give a folder with config.json and model*.safetensors\n"},
    {{"model.init=pretrained", "checkpoint.load_path=shards"},
        "model.init = \"pretrained\": model.name = \"tiny\" is no folder with weights\n"
        "  give a folder with config.json and model*.safetensors\n"
        "model.init = \"pretrained\": checkpoint.load_path loads others\n"
        "  give one of the two\n"},
    {{"logging.tensorboard=true"}, "logging.tensorboard = true: run_dir names no folder\n"},
    {{"logging.tensorboard=true", "logging.run_dir=out"}, NULL},
    {{"logging.run_dir=ab"}, "logging.run_dir = \"ab\": is there and is not a folder\n"},
    {{"logging.run_dir=shards"}, NULL},
    {{"logging.run_dir="}, NULL},
    {{"dataset.name=text.txt", "dataset.tokenizer=x"}, "dataset.tokenizer = \"x\": no such file\n"},
    {{"dataset.split=x"},
        "dataset.split = \"x\": local data has no splits\n"
        "  validation_fraction keeps the last part for evaluation\n"},
    {{"dataset.subset_name=x"},
        "dataset.subset_name = \"x\": local data has no subsets\n"
        "  give the subset's files or shards as dataset.name\n"},
    {{"checkpoint.save_frequency=1", "checkpoint.save_dir=x"}, NULL},
    {{"checkpoint.resume=auto", "checkpoint.save_dir=x"}, NULL},
    {{"checkpoint.load_path=x"}, "checkpoint.load_path = \"x\": no such folder\n"},
    {{"checkpoint.load=weights", "checkpoint.load_path=x"},
        "checkpoint.load_path = \"x\": no such folder\n"},
    {{"model.init=pretrained", "checkpoint.load_path=x"},
        "checkpoint.load_path = \"x\": no such folder\n"
        "model.init = \"pretrained\": model.name = \"tiny\" is no folder with weights\n"
        "  give a folder with config.json and model*.safetensors\n"
        "model.init = \"pretrained\": checkpoint.load_path loads others\n"
        "  give one of the two\n"},
    {{"logging.tensorboard=true", "logging.run_dir=x"}, NULL},
    {{"dataset.name=a//"},
        "dataset.name = \"a//\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"dataset.name=a/b/"},
        "dataset.name = \"a/b/\": no such file or folder\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n"},
    {{"training.total_train_steps=1", "training.lr_schedule=wsd", "training.lr_decay_steps=2"},
        "training.lr_decay_steps = 2: with warmup_steps 0 more than the 1 steps of the run\n"},
    {{"training.total_train_steps=1", "training.lr_schedule=wsd", "training.lr_decay_steps=1"},
        NULL},
    {{"logging.eval_frequency=1"},
        "logging.eval_frequency = 1: no data is kept for evaluation\n"
        "  dataset.validation_fraction 0.05 keeps a twentieth\n"},
    {{"logging.eval_frequency=1", "dataset.validation_fraction=0.1"}, NULL},
    {{"model.nam=x", "distributed.tp_size=3", "training.total_train_steps=0"},
        "model.nam: no such key\n"
        "  did you mean model.name?\n"
        "training.total_train_steps = 0: a whole number of at least 1 is wanted\n"
        "distributed.tp_size = 3: does not divide model.num_attention_heads 4\n"
        "distributed.tp_size = 3: model.num_key_value_heads 2 is neither a multiple nor a divisor "
        "of it\n"
        "distributed.tp_size = 3: does not divide model.intermediate_size 160\n"
        "  tp_size 2 or 4 would do\n"},
    {{"model.name=null", "model.hiden_size=8"},
        "model.hiden_size: no such key\n"
        "  did you mean model.hidden_size?\n"},
    {{"training.lr_schedule=wsd", "training.lr_decay_steps=1",
         "training.warmup_steps=9223372036854775807"},
        "training.lr_decay_steps = 1: with warmup_steps 9223372036854775807 more than the 10 steps "
        "of the run\n"},
    {{"training.lr_schedule=wsd", "training.lr_decay_steps=9223372036854775807",
         "training.warmup_steps=9223372036854775807"},
        "training.lr_decay_steps = 9223372036854775807: with warmup_steps 9223372036854775807 more "
        "than the 10 steps of the run\n"},
};

// The keys of a whole shape.
static const char *const shape_keys[] = {"model.num_hidden_layers=1", "model.hidden_size=8",
    "model.intermediate_size=9", "model.num_attention_heads=2", "model.vocab_size=9"};

static void loads(const char *const *options, int count, const char *faults)
{
    cy_config config;
    cy_config_errors errors = {0};
    char texts[8][128];
    const char *list[8] = {NULL};
    for (int i = 0; i < count; i++) {
        snprintf(texts[i], sizeof(texts[i]), "%s", options[i]);
        list[i] = cy_test_quotes(texts[i]);
    }
    const cy_config_machine machine = {.cores = 2};
    const cy_status status =
        cy_config_load(&config, &errors, "run.json", list, count, CY_CONFIG_FOR_TRAIN, &machine);
    assert_string_equal(errors.count > 0 ? errors.lines.bytes : "", faults != NULL ? faults : "");
    assert_int_equal(status, faults != NULL ? CY_ERR_REQUEST : CY_OK);
    if (faults != NULL) {
        const size_t length = strlen(faults) - 1; // without the last line break
        assert_int_equal(strlen(cy_error_text()), length);
        assert_memory_equal(cy_error_text(), faults, length);
    }
    cy_config_errors_free(&errors);
}

static void into_a_folder(void **state)
{
    (void)state;
    static const char *const files[] = {
        "text.txt", "a.bin", "b.idx", "ab", "bin", ".bin", "tok.json"};
    const char *run = "{\"model\": {\"name\": \"tiny\"}, \"dataset\": {\"name\": \"shards\"},"
                      " \"training\": {\"total_train_steps\": 10}}";
    char folder[256];
    cy_test_folder(folder, sizeof(folder));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(mkdir("shards", 0700), 0);
    for (size_t i = 0; i < CY_TEST_COUNT(files); i++)
        CY_CHECK_OK(cy_file_write(files[i], "x", 1));
    CY_CHECK_OK(cy_file_write("run.json", run, strlen(run)));
}

static void what_a_run_needs(void **state)
{
    into_a_folder(state);
    for (size_t i = 0; i < CY_TEST_COUNT(runs); i++) {
        int count = 0;
        while (count < 3 && runs[i].options[count] != NULL)
            count++;
        loads(runs[i].options, count, runs[i].faults);
    }
}

// A size that is missing is said once: nothing that would divide by it is looked at.
static void one_size_is_missing(void **state)
{
    into_a_folder(state);
    for (size_t i = 0; i < CY_TEST_COUNT(shape_keys); i++) {
        const char *options[6] = {"model.name=null", "distributed.tp_size=3"};
        int count = 2;
        for (size_t k = 0; k < CY_TEST_COUNT(shape_keys); k++) {
            if (k != i) options[count++] = shape_keys[k];
        }
        char wanted[256];
        const char *name = shape_keys[i] + strlen("model.");
        snprintf(wanted, sizeof(wanted),
            "model: %.*s missing\n  give model.name, a folder with config.json or a preset, or "
            "these keys\n",
            (int)strcspn(name, "="), name);
        loads(options, count, wanted);
    }
}

// A fault of the reading does not keep the rest from being looked at; what follows from it does.
static void faults_of_each_step(void **state)
{
    into_a_folder(state);
    static const char *const options[] = {
        "model.nam=x", "distributed.tp_size=3", "training.total_train_steps=0"};
    loads(options, 3,
        "model.nam: no such key\n"
        "  did you mean model.name?\n"
        "training.total_train_steps = 0: a whole number of at least 1 is wanted\n"
        "distributed.tp_size = 3: does not divide model.num_attention_heads 4\n"
        "distributed.tp_size = 3: model.num_key_value_heads 2 is neither a multiple nor a divisor "
        "of it\n"
        "distributed.tp_size = 3: does not divide model.intermediate_size 160\n"
        "  tp_size 2 or 4 would do\n");
    static const char *const misspelt[] = {"model.name=null", "model.hiden_size=8"};
    loads(misspelt, 2,
        "model.hiden_size: no such key\n"
        "  did you mean model.hidden_size?\n");
    CY_CHECK_OK(cy_file_write("run.json", "[]", 2));
    loads(NULL, 0,
        "run.json: an object of sections is wanted\n"
        "training: total_train_steps and max_tokens are both absent\n"
        "  give the step or the number of tokens at which training ends\n"
        "dataset.name: absent\n"
        "  give a folder that 'cyclotron data prepare' made, or a text file\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_parallel_sizes),
        cmocka_unit_test(sizes_of_the_model),
        cmocka_unit_test(pieces_of_a_sequence),
        cmocka_unit_test(ulysses_sizes),
        cmocka_unit_test(stages_and_their_layers),
        cmocka_unit_test(orders_of_ranks),
        cmocka_unit_test(ways_to_reduce),
        cmocka_unit_test(sizes_of_experts),
        cmocka_unit_test(what_this_build_cannot_do),
        cmocka_unit_test(pieces_of_strict_sums),
        cmocka_unit_test(processes_and_ranks),
        cmocka_unit_test(what_a_run_needs),
        cmocka_unit_test(one_size_is_missing),
        cmocka_unit_test(faults_of_each_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
