#!/usr/bin/env bash
# Gradients of fp16 that overflow: the step is left out by all ranks of all axes alike, the scale falls,
# and training goes on.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# skipped RUN: of each step, whether it was left out.
skipped() {
    grep -o '"skipped":[a-z]*' "$folder/$1/metrics.jsonl" | sed 's/.*://' | xargs
}
fp16() {
    local run=$1
    shift
    # Of sequences this short the gradients are the largest.
    train 0 "$run" --model.dtype=fp16 --training.total_train_steps=16 --training.lr_decay_steps=32 \
        --training.seq_length=4 --training.micro_batch_size=32 --logging.hash_frequency=1 "$@"
}
fp16 one
fp16 axes --distributed.tp_size=2 --distributed.pp_size=2 --distributed.dp_size=2
fp16 shards --distributed.cp_size=2 --distributed.dp_size=2 --distributed.zero_stage=1
for run in one axes shards; do
    left_out=$(skipped $run)
    check "$run: the first scale is too large: $left_out" test "${left_out%% *}" = true
    check "$run: and falls until it is not" test "$(grep -o false <<<"$left_out" | wc -l)" -ge 8
    # A step that is left out changes no parameter of any rank; one that is not does.
    step=1
    before=
    for wanted in $left_out; do
        now=$(step_value $run $step params_hash)
        if [ -n "$before" ]; then
            same "$run: parameters as before step $step" "$wanted" \
                "$([ "$now" = "$before" ] && echo true || echo false)"
        fi
        before=$now
        step=$((step + 1))
    done
    check "$run has learned" awk -v first="$(step_value $run 1 loss)" -v last="$(step_value $run 16 loss)" \
        'BEGIN { exit !(first > 5 && last < first - 0.1) }'
done

# A model of usual size takes the first scale, or the one below it.
expect 0 train "$source_folder/examples/tiny.json" --dataset.name="$folder/text.txt" \
    --dataset.tokenizer="$folder/tokenizer.json" --model.dtype=fp16 --training.total_train_steps=30 \
    --logging.run_dir="$folder/usual" --logging.measure_peak=false
left_out=$(skipped usual)
same "steps of it" 30 "$(wc -w <<<"$left_out")"
check "hardly a step is left out: $left_out" test "$(grep -o true <<<"$left_out" | wc -l)" -le 2

finish
