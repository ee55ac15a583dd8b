#!/usr/bin/env bash
# cyclotron bench step: its fields, figures that follow from each other, and the memory that was
# planned against what the process came to.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

cat >"$folder/step.json" <<'CONFIG'
{
    "model": {"num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 1408,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 8192, "dtype": "bf16",
        "tie_word_embeddings": true},
    "training": {"seq_length": 128, "micro_batch_size": 2, "gradient_accumulation_steps": 1}
}
CONFIG

expect 0 bench step "$folder/step.json" --profile --json
is err ""
# Where the time went, as the last member of the one object.
says out '], "profile": {"dropped":0,"wall_s":'
says out '"name":"attention_backward","calls":'
sed -i 's/, "profile": .*/}/' "$folder/out"
fields="tok_s tok_s_min tok_s_max mfu mfu_causal flops_per_token peak_gflop_s peak_rss_gb planned_gb "
fields+="first_step_s ranks threads dtype seq batch params traffic"
found=$(grep -oE '"[a-z_]+":' "$folder/out" | tr -d '":' | xargs)
[ "$found" = "$fields" ] || { echo "FAIL: fields $found"; failures=$((failures + 1)); }
holds "shape" "$(value seq) == 128 && $(value batch) == 2 && $(value ranks) == 1"
holds "order" "$(value tok_s_min) <= $(value tok_s) && $(value tok_s) <= $(value tok_s_max)"
holds "share" "$(value mfu) / ($(value tok_s) * $(value flops_per_token) / 1e9 / $(value peak_gflop_s)) \
    > 0.999 && $(value mfu) > 0"
holds "FLOPs a token" "$(value flops_per_token) == 6 * $(value params) + 12 * 4 * 512 * 128"
# What a sanitizer keeps about memory is resident, too, and part of what bench plans.
[ -n "${SANITIZED:-}" ] ||
    holds "planned memory within 5 %" "$(value peak_rss_gb) / $(value planned_gb) > 0.95 && \
        $(value peak_rss_gb) / $(value planned_gb) < 1.05"

# The plan alone tells the same.
planned=$(value planned_gb) flops_per_token=$(value flops_per_token)
causal=$(awk "BEGIN { print $(value mfu_causal) / $(value mfu) }")
expect 0 plan "$folder/step.json" --json
total=$(grep -oE '"total_bytes":[0-9]+' "$folder/out" | sed 's/.*://')
[ -n "${SANITIZED:-}" ] || holds "plan and bench" "$total / 2^30 / $planned > 0.97 && $total / 2^30 / $planned < 1.03"

# The machine's peak takes longer to measure than the steps of what follows.
expect 0 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.threads_per_rank=1 \
    --logging.measure_peak=false
says out 'tokens/s'
says out '), 1 rank of 1 thread, '
expect 0 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.dp_size=2 \
    --distributed.threads_per_rank=2 --logging.measure_peak=false
says out '), 2 ranks of 2 threads, '
expect 0 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.threads_per_rank=1 \
    --logging.measure_peak=false --profile
check "what bounds an update" grep -qE '^adamw .*% memory$' "$folder/out"
# The shares of the JSON for a person, in percent: with half the attention it is less.
expect 0 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.threads_per_rank=1
read -r mfu peak mfu_causal < <(sed -nE 's/^share +([0-9.]+) % of the measured matrix peak of ([0-9]+) GFLOP\/s \(([0-9.]+) % with half the attention\)$/\1 \2 \3/p' "$folder/out")
tok_s=$(sed -nE 's/^tokens\/s +([0-9.]+) .*/\1/p' "$folder/out")
share="100 * $tok_s * $flops_per_token / 1e9 / $peak"
room="(0.01 + 0.5 / $peak)" # of what is rounded
holds "share in percent" "$mfu < $share * (1 + $room) + 0.06 && $mfu > $share * (1 - $room) - 0.06"
holds "share with half the attention" "$mfu_causal < $causal * $mfu + 0.11 &&
    $mfu_causal > $causal * $mfu - 0.11"
# What a pipeline's schedule took, drawn.
expect 0 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.pp_size=2 \
    --distributed.threads_per_rank=1 --logging.measure_peak=false --schedule-svg="$folder/took.svg"
grep '<text' "$folder/took.svg" >"$folder/out"
says out '1f1b, measured: 2 stages'
# What an axis of the mesh sends, over links of 10 ms: 4 sums a layer, none of them hidden.
expect 0 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.tp_size=2 --distributed.tp_overlap=false \
    --distributed.threads_per_rank=1 --logging.measure_peak=false --link-us=10000 --json
says out '"mfu": null, "mfu_causal": null, '
says out '"peak_gflop_s": null, '
says out '"traffic": [{"dimension": "tp", "bytes": '
holds "slow links" "$(value exposed_s) >= 4 * 4 * 0.01"
# The same for a person: the first axis and the last one, none of ranks that send nothing.
expect 0 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.tp_size=2 \
    --distributed.dp_size=2 --distributed.threads_per_rank=1 --logging.measure_peak=false
check "traffic by axis" grep -qE \
    '^traffic tp    [0-9.]+ MB in [0-9]+ messages from rank 0 in the last step, [0-9.]+ ms exposed$' "$folder/out"
check "of tp and dp" test "$(grep '^traffic' "$folder/out" | awk '{ print $2 }' | xargs)" = "tp dp"
# The same over links of 20 MB/s.
expect 0 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.tp_size=2 --distributed.tp_overlap=false \
    --distributed.threads_per_rank=1 --logging.measure_peak=false --link-gb-s=0.02 --json
holds "narrow links" "$(value exposed_s) >= 0.99 * $(value bytes) / 0.02e9"
expect 2 bench step "$folder/step.json" --distributed.pp_size=2 --distributed.pp_engine=zero_bubble \
    --training.recompute=full
says err 'a backward pass in two parts keeps what recomputation would make again'
# A run whose timeline cannot be kept has failed, and prints no figures.
expect 1 bench step "$folder/step.json" --steps=1 --warmup=0 --distributed.threads_per_rank=1 \
    --logging.measure_peak=false --timeline="$folder/none/timeline.json"
is out ""
says err "$folder/none/timeline.json"
expect 2 bench step "$folder/step.json" --steps=0
says err '--steps=0'

finish
