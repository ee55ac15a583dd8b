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
    train 0 whole $mesh "${topk[@]}" --logging.hash_frequency=1 --checkpoint.save_frequency=4 \
        --checkpoint.save_dir="$folder/saved"
    # shellcheck disable=SC2086
    train 0 resumed $mesh "${topk[@]}" --logging.hash_frequency=1 \
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
