#!/usr/bin/env bash
# cyclotron plan: what it shows holds together, whatever the mesh and the size of the model.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cat >"$folder/plan.json" <<'CONFIG'
{
    "model": {"num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "dtype": "bf16",
        "tie_word_embeddings": true},
    "training": {"seq_length": 64, "micro_batch_size": 2, "gradient_accumulation_steps": 4},
    "distributed": {"threads_per_rank": 1}
}
CONFIG

# number NAME [N]: the N-th number behind a name in the last output.
number() {
    grep -oE "\"$1\":[-0-9.e+]+" "$folder/out" | sed -n "${2:-1}s/.*://p"
}

equal() {
    if ! awk "BEGIN { exit !($2) }"; then
        echo "FAIL: $1: $2"
        failures=$((failures + 1))
    fi
}

expect 0 plan "$folder/plan.json"
is err ""
says out 'mesh: 1 rank = tp 1'
says out 'schedule: one stage, 4 microbatches'
says out 'q k v'
says out 'memory in GB'

# 512 x 64 embedding, 4 layers of (64 + 32 + 32 + 64 + 3 x 128) x 64 + 2 x 64, a last norm of 64.
expect 0 plan "$folder/plan.json" --json
is err ""
parameters=$((512 * 64 + 4 * ((64 + 32 + 32 + 64 + 3 * 128) * 64 + 2 * 64) + 64))
equal "parameters" "$(number parameters) == $parameters"
equal "weights in bf16" "$(number weights) >= 2 * $parameters && $(number weights) < 2.02 * $parameters"
equal "gradients in fp32" "$(number gradients) == 2 * $(number weights)"
equal "master copies and moments" "$(number optimizer) == 6 * $(number weights)"
equal "the total" "$(number total) == $(number weights) + $(number gradients) + \
    $(number optimizer) + $(number units) + $(number compression) + $(number tables) + $(number activations) + $(number scratch)"
equal "all of it" "$(number total_bytes) == $(number total) + $(number libraries_bytes)"
# 6 N tokens and attention, of 4 microbatches of 128 tokens; elementwise work is on top.
equal "FLOPs of the step" "$(number flops) > 6 * $parameters * 512 && \
    $(number flops) < 8 * $parameters * 512"
one_total=$(number total)
one_flops=$(number flops)

# Two replicas: the same memory, and gradients that meet: 2 (P - 1) / P of their bytes.
expect 0 plan "$folder/plan.json" --distributed.dp_size=2 --json
equal "ranks" "$(number world) == 2"
equal "memory of a replica" "$(number total 2) < 1.02 * $one_total"
equal "bytes of gradients" "$(grep -oE '"dp":\{"bytes":[0-9.e+]+' "$folder/out" | head -n 1 |
    sed 's/.*://') >= $(number gradients) && $(number gradients) > 0"
says out '"buckets":{"zero_stage":0,"element_bytes":4,"elements":[[0,'
expect 0 plan "$folder/plan.json" --distributed.dp_size=2 --distributed.zero_stage=1 --json
equal "half of the optimizer's memory" "$(number optimizer) <= 3.02 * $(number weights)"

# Two tensor-parallel ranks: halves of the matrices, half of the work.
expect 0 plan "$folder/plan.json" --distributed.tp_size=2 --json
says out '"name":"model.layers.0.self_attn.q_proj.weight","shape":[64,64],"tp":[{"rows":[0,32],"cols":[0,64],"copies":1},{"rows":[32,32],'
says out '"name":"model.layers.0.mlp.down_proj.weight","shape":[64,128],"tp":[{"rows":[0,64],"cols":[0,64],"copies":1},{"rows":[0,64],"cols":[64,64],'
equal "half of the work" "$(number flops) < 0.6 * $one_flops"

# A model that no machine like this could hold is planned in no time and no memory.
expect 0 plan "$source_folder/examples/smollm-135m.json" --model.name=llama-3-8b \
    --distributed.dp_size=2 --distributed.tp_size=4 --distributed.zero_stage=1 --json
equal "parameters of Llama 3 8B" "$(number parameters) == 8030261248"
equal "gigabytes" "$(number total_bytes) > 100 * 2^30"

# The same for a person. A stage of two layers with the embedding: 102656 gradients in fp32.
expect 0 plan "$folder/plan.json" --distributed.pp_size=2 --distributed.pp_engine=1f1b \
    --distributed.dp_size=2 --model.num_attention_heads=8
says out 'schedule: 1f1b, 2 stages, 4 microbatches, 1 chunk a stage: 15 ticks, bubble 20.00 %, 8 messages'
says out '  live activations by stage: 2 1'
says out 'gradients: ZeRO 0, 1 message a step over 2 ranks, 0.39 MB in all, the largest 0.39 MB'
says out '     0   0   0   0   0  e 0-1  '
says out '     3   0   0   1   1  e 2-3 h'
expect 0 plan "$folder/plan.json" --distributed.tp_size=8 --distributed.dp_size=9 \
    --distributed.zero_stage=2 --model.num_attention_heads=8
says out '512 x 64                    rows 0-63 | 64-127 | 128-191 | 192-255 | .. | 448-511'
says out '16 x 64          q k v      rows 0-7 | 0-7 | 0-7 | 0-7 | .. | 8-15'
says out '64 x 128                    columns 0-15 | 16-31 | 32-47 | 48-63 | .. | 112-127'
says out 'gradients: ZeRO 2, 6 messages a microbatch over 9 ranks, '
says out '    63   7   0   0   7  e 0-3 h'
says out '  8 ranks more'
# The largest rank is listed wherever it stands: here the first of the last stage.
expect 0 plan "$folder/plan.json" --distributed.tp_size=8 --distributed.cp_size=8 \
    --distributed.pp_size=2 --model.num_attention_heads=8 --model.vocab_size=65536
says out '    64   0   0   1   0  e 3-3 h '
says out '  63 ranks more'

# The parts are the whole, also what travels between stages.
expect 0 plan "$folder/plan.json" --distributed.pp_size=2 --distributed.pp_engine=interleaved \
    --distributed.pp_chunks=2 --distributed.dp_size=2 --distributed.zero_stage=2 --json
equal "something travels" "$(number boundaries) > 0"
sum=0
for part in weights gradients optimizer units compression tables activations boundaries scratch; do
    sum="$sum + $(number $part)"
done
equal "the parts are the whole" "$sum == $(number total)"

# What is not there has no line; operands are told in GB of 2^30 bytes.
expect 0 plan "$folder/plan.json"
check "no line of compression" bash -c "! grep -q compression '$folder/out'"
check "no line of a pipeline" bash -c "! grep -q 'travel between' '$folder/out'"
gigabytes=$(sed -nE 's/^work of a step: .* FLOP and ([0-9.]+) GB of operands of rank 0$/\1/p' "$folder/out")
expect 0 plan "$folder/plan.json" --json
equal "operands in GB" "$(number operand_bytes) / 2^30 > ${gigabytes:-0} - 0.0005"
equal "operands in GB" "$(number operand_bytes) / 2^30 < ${gigabytes:-0} + 0.0005"

# One of a thing is told as one; biases of q, k and v lie in one vector.
expect 0 plan "$folder/plan.json" --training.gradient_accumulation_steps=1 \
    --distributed.threads_per_rank=2 --model.model_type=qwen2
says out 'model: 181K parameters, bf16; a step takes 2 samples, 128 tokens'
says out '  each layer  self_attn.q_proj.bias            1 x 64           q k v bias whole'
says out '  each layer  self_attn.o_proj.weight          64 x 64                     whole'
says out '  each layer  mlp.up_proj.weight               128 x 64         gate up    whole'
says out '  end         model.norm.weight                1 x 64                      whole'
says out 'schedule: one stage, 1 microbatch one after another'
says out 'memory in GB, each rank of 2 threads (e embedding'
# A stage of two chunks has the layers 0 and 2; what compression keeps back is told on its own.
expect 0 plan "$folder/plan.json" --distributed.pp_size=2 --distributed.pp_engine=interleaved \
    --distributed.pp_chunks=2 --distributed.dp_size=2 --distributed.compression=topk \
    --training.total_train_steps=10
says out 'schedule: interleaved, 2 stages, 4 microbatches, 2 chunks a stage: 27 ticks, bubble 11.11 %, 24 messages'
says out '  live activations by stage: 5 3'
says out '     0   0   0   0   0  e 0,2  '
says out '     3   0   0   1   1  e 1,3 h'
says out 'memory in GB, each rank of 1 thread (e embedding'
says out '  0.001 GB of rank 0 are for compression: gradients kept back, messages on their way'
says out '  0.000 GB of rank 0 travel between stages of the pipeline'
says out '  pp    rank 0 sends 0.313 MB in 14 messages'
says out '  world rank 0 sends 0.000 MB in 1 message'

# Chunks of several layers, and those that go on where the one before them ends.
expect 0 plan "$folder/plan.json" --distributed.pp_size=2 --distributed.pp_engine=interleaved \
    --distributed.pp_chunks=3 --model.num_hidden_layers=9
says out '  rank  tp  cp  pp  dp  layers                 weights gradients'
says out '     0   0   0   0   0  e 0-1,4-5,7              0.0'
says out '     1   0   0   1   0  e 2-3,6,8 h              0.0'
expect 0 plan "$folder/plan.json" --distributed.pp_size=2 --distributed.pp_engine=zero_bubble \
    --distributed.pp_chunks=2 --model.num_hidden_layers=8
says out '     0   0   0   0   0  e 0-1,6-7 h '
says out '     1   0   0   1   0  2-5 '
# Of more than three the last one is told.
expect 0 plan "$folder/plan.json" --distributed.pp_size=2 --distributed.pp_engine=interleaved \
    --distributed.pp_chunks=4 --model.num_hidden_layers=18
says out '     0   0   0   0   0  e 0-2,6-7,..,14-15 '
says out '     1   0   0   1   0  e 3-5,8-9,..,16-17 h '

expect 2 plan "$folder/plan.json" --search
says err "--search: this version does not search for meshes yet"
says err "  hint: plan one mesh after the other: 'cyclotron plan $folder/plan.json --distributed.tp_size=2'"
expect 2 plan "$folder/plan.json" --distributed.tp_size=3
says err 'tp_size = 3'
is out ""

# Tensor parallel: logits of a rank's share of the vocabulary only, which are nearly all of the scratch
# memory here; rows of residuals and norms are split by sequence parallelism.
wide=(plan "$folder/plan.json" --model.vocab_size=65536 --json)
expect 0 "${wide[@]}"
all_logits=$(number scratch)
expect 0 "${wide[@]}" --distributed.tp_size=2
half_logits=$(number scratch)
split_activations=$(number activations)
equal "logits of half of the vocabulary" "$half_logits < 0.51 * $all_logits"
expect 0 "${wide[@]}" --distributed.tp_size=2 --distributed.sequence_parallel=true
# Half of 128 tokens less, 64 wide in bf16, for both norms of each of the four layers at least.
equal "activations of norms" "$split_activations - $(number activations) > 4 * 2 * 64 * 64 * 2"

# Replicas are planned once: each further one is like the first.
expect 0 plan "$folder/plan.json" --distributed.dp_size=16384 --json
check "16384 ranks" test "$(grep -o '"rank":' "$folder/out" | wc -l)" = 16384
check "one kind of rank" test "$(grep -o '"tp":0,"cp":0,"pp":0,"dp":[0-9]*,[^}]*' "$folder/out" |
    sed 's/"dp":[0-9]*//' | sort -u | wc -l)" = 1
equal "memory of 16384 ranks" \
    "$(number total_bytes) == $(number libraries_bytes) + 16384 * $(number total)"

finish
