#!/usr/bin/env bash
# Compressed gradients from the command line: what is planned and what is sent, resuming bit for
# bit, the rule on another mesh, and what is refused.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# sent NAME STEP: bytes of dp in a step.
sent() {
    grep "^{\"step\":$2,\"tokens\"" "$folder/$1/metrics.jsonl" |
        sed -E 's/.*"dp":\{"bytes":([0-9]+).*/\1/'
}

# planned OPTIONS...: the same from the plan, of all ranks.
planned() {
    expect 0 plan "$folder/tiny.json" --json "$@"
    grep -oE '"dp":\{"bytes":[0-9.e+]+' "$folder/out" |
        awk -F: '{ sum += $3 } END { printf "%d\n", sum }'
}

two=(--distributed.dp_size=2 --training.gradient_accumulation_steps=1 --logging.hash_frequency=1)
topk=(--distributed.compression=topk --distributed.topk_ratio=0.05)
int8=(--distributed.compression=int8)

# The model's flat range: units are padded to multiples of 128 elements for two ranks.
pad() { echo $((($1 + 127) / 128 * 128)); }
layer=$((32 * 32 + 2 * 16 * 32 + 32 * 32 + 3 * 32 * 64 + 2 * 32))
elements=$((2 * $(pad $layer) + $(pad $((320 * 32))) + $(pad 32)))
vectors=$((5 * 32)) # norms: sent as they are, in fp32

# topk: 8 bytes for each element sent, to the one other rank; the number is even. And the loss.
sparse=$(awk "BEGIN { k = 0.05 * $elements; if (k > int(k)) k = int(k) + 1; print int((k + 1) / 2) * 2 }")
train 0 topk "${two[@]}" "${topk[@]}" --training.total_train_steps=4
same "bytes of topk" "$((2 * (8 * sparse + 4 * vectors + 8)))" "$(sent topk 1)"
same "bytes of topk, last step" "$(planned "${two[@]}" "${topk[@]}")" "$(sent topk 4)"

# The warm-up: a quarter in step 1, a sixteenth in step 2, then the ratio; each step says its ratio
# and what was sent, and the plan has the bytes of each.
warm=("${two[@]}" "${topk[@]}" --distributed.topk_warmup_steps=2)
train 0 warm "${warm[@]}" --training.total_train_steps=4
expect 0 plan "$folder/tiny.json" --json "${warm[@]}" --training.total_train_steps=4
ratios=(0.25 0.0625 0.05 0.05)
for step in 1 2 3 4; do
    count=$(awk "BEGIN { k = ${ratios[step - 1]} * $elements; if (k > int(k)) k = int(k) + 1
        print int((k + 1) / 2) * 2 }")
    same "elements of step $step" "\"ratio\":$(awk "BEGIN { printf \"%.17g\", ${ratios[step - 1]} }"),\"sent\":$((2 * count))" \
        "$(grep "^{\"step\":$step,\"tokens\"" "$folder/warm/metrics.jsonl" |
            grep -oE '"ratio":[0-9.e-]+,"sent":[0-9]+')"
    same "bytes of step $step" "$((2 * (8 * count + 4 * vectors + 8)))" "$(sent warm $step)"
done
same "planned stages" "1 2 3" "$(grep -oE '"first_step":[0-9]+' "$folder/out" | cut -d: -f2 | xargs)"
planned_stages=$(grep -oE '"rank_bytes":[0-9.e+]+' "$folder/out" | cut -d: -f2 |
    awk '{ printf "%d ", 2 * $1 }')
same "planned bytes of the stages" "$(sent warm 1) $(sent warm 2) $(sent warm 3) " "$planned_stages"
expect 0 plan "$folder/tiny.json" "${warm[@]}" --training.total_train_steps=4
says out 'steps 1-1, ratio 0.25: '
says out 'from step 3, ratio 0.05: '

# int8: half a bucket out and half back, a scale for each 256 elements of a half.
half=$((elements / 2))
row=$((half + 4 * ((half + 255) / 256)))
train 0 int8 "${two[@]}" "${int8[@]}" --training.total_train_steps=4
same "bytes of int8" "$((2 * (2 * row + 4 * vectors + 8)))" "$(sent int8 1)"
same "bytes of int8, last step" "$(planned "${two[@]}" "${int8[@]}")" "$(sent int8 4)"

# Memory is planned: what is kept back is fp32 and whole.
expect 0 plan "$folder/tiny.json" --json "${two[@]}" "${topk[@]}"
check "memory of what is kept back" awk "BEGIN { exit !($(grep -oE '"compression":[0-9]+' \
    "$folder/out" | head -n 1 | cut -d: -f2) > 4 * $elements) }"
expect 0 plan "$folder/tiny.json" "${two[@]}" "${topk[@]}"
says out 'are for compression: gradients kept back, messages on their way'

# A run that is interrupted and resumed leaves what an uninterrupted one leaves.
for mesh in "--distributed.dp_size=2" "--distributed.dp_size=2 --distributed.pp_size=2" \
    "--distributed.tp_size=2 --distributed.cp_size=2"; do
    # shellcheck disable=SC2086 # options are words
    train 0 whole $mesh "${topk[@]}" --distributed.topk_warmup_steps=5 --logging.hash_frequency=1 --checkpoint.save_frequency=4 \
        --checkpoint.save_dir="$folder/saved"
    # shellcheck disable=SC2086
    train 0 resumed $mesh "${topk[@]}" --distributed.topk_warmup_steps=5 --logging.hash_frequency=1 \
        --checkpoint.load_path="$folder/saved/step-00000004"
    same "losses and hashes after resuming on $mesh" "$(losses whole 5)" "$(losses resumed 5)"
    rm -rf "$folder/saved" "$folder/whole" "$folder/resumed"
done

# On another mesh what was kept back is left out, and the run says so.
train 0 first "${two[@]}" "${topk[@]}" --checkpoint.save_frequency=4 \
    --checkpoint.save_dir="$folder/saved"
expect 0 checkpoint verify "$folder/saved/step-00000004"
expect 0 checkpoint export "$folder/saved/step-00000004" --out="$folder/exported"
train 0 other --checkpoint.load_path="$folder/saved/step-00000004"
says err 'gradients that compression kept back there belong to another mesh and are left out'
train 0 same "${two[@]}" "${topk[@]}" --checkpoint.load_path="$folder/saved/step-00000004"
if grep -q 'left out' "$folder/err"; then
    echo "FAIL: something was left out on the same mesh"
    failures=$((failures + 1))
fi

train 2 refused "${two[@]}" "${topk[@]}" --distributed.zero_stage=1
says err 'zero_stage 1 keeps a part of the gradients; what compression keeps back is of the whole'
train 2 refused "${two[@]}" "${topk[@]}" --distributed.dp_reduce=naive
says err 'sends gradients as they are'
train 2 refused "${two[@]}" "${topk[@]}" --model.dtype=fp16
says err "loss scale, which changes"
train 0 scaled "${two[@]}" "${int8[@]}" --model.dtype=fp16 --training.total_train_steps=2
finish
