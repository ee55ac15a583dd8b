#!/usr/bin/env bash
# What metrics.jsonl says was sent in a step is what the plan says a step sends, in the first step
# as in every other, whatever runs between the steps.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# planned: "dimension bytes messages" of all ranks together, from the plan in $folder/out.
planned() {
    grep -oE '"comm":\{("[a-z]+":\{[^}]*\},?)*\}' "$folder/out" |
        grep -oE '"[a-z]+":\{"bytes":[0-9.e+]+,"messages":[0-9]+' |
        awk -F'[":,{]+' '{ bytes[$2] += $4; messages[$2] += $6 }
            END { for (d in bytes) printf "%s %d %d\n", d, bytes[d], messages[d] }' | sort
}

# sent NAME STEP: the same of a step of a run.
sent() {
    grep "^{\"step\":$2,\"tokens\"" "$folder/$1/metrics.jsonl" |
        grep -oE '"[a-z]+":\{"bytes":[0-9]+,"messages":[0-9]+' |
        awk -F'[":,{]+' '{ printf "%s %d %d\n", $2, $4, $6 }' | sort
}

# traffic NAME DIMENSIONS OPTIONS...: plan and run agree, and these dimensions are told.
traffic() {
    local name=$1 dimensions=$2
    shift 2
    expect 0 plan "$folder/tiny.json" --json "$@"
    local plan
    plan=$(planned)
    same "dimensions of $name" "$dimensions" "$(printf '%s\n' "$plan" | cut -d' ' -f1 | xargs)"
    train 0 "$name" --training.total_train_steps=3 --logging.hash_frequency=1 \
        --logging.eval_frequency=2 "$@"
    for step in 1 2 3; do
        same "traffic of $name, step $step," "$plan" "$(sent "$name" $step)"
    done
}

# formula NAME DIMENSION BYTES: a step of a run sends as many as the formula says, within a percent.
formula() {
    local found
    found=$(sent "$1" 1 | awk -v d="$2" '$1 == d { print $2 }')
    same "$1: bytes of $2 are the formula's $3 (they are $found)" yes \
        "$(awk -v a="${found:-0}" -v b="$3" 'BEGIN { print ((a >= b * 0.99 && a <= b * 1.01) ? "yes" : "no") }')"
}
parameters=$((320 * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32 + 2 * 32) + 32))

# The 8 bytes of the loss are of the dimension whose group adds them; the norm is of all ranks.
traffic dp 'dp' --distributed.dp_size=2 --training.gradient_accumulation_steps=1 --logging.measure_peak=true
# 2 (d-1)/d of the fp32 gradients a rank, once a step whatever the accumulation.
formula dp dp $((2 * 2 * 1 * 4 * parameters / 2))
train 0 dp4 --training.total_train_steps=1 --distributed.dp_size=4 --training.micro_batch_size=1 \
    --model.vocab_size=4096 # so that the rounding of ranks' shards weighs little
formula dp4 dp $((4 * 2 * 3 * 4 * (parameters + 32 * (4096 - 320)) / 4))
traffic zero3 'dp world' --distributed.dp_size=2 --distributed.zero_stage=3
# Tied embeddings: the gradients of both copies meet, which is the pipeline's traffic.
traffic pp 'pp world' --distributed.pp_size=2
tied=$(sent pp 1 | awk '$1 == "pp" { print $2 }')
train 0 untied --training.total_train_steps=1 --distributed.pp_size=2 \
    --model.tie_word_embeddings=false
same "bytes of the embedding's gradients" "$((2 * 4 * 320 * 32))" \
    "$((tied - $(sent untied 1 | awk '$1 == "pp" { print $2 }')))"
# 2 (P-1) M b s h elements: activations one way, their gradients the other.
formula untied pp $((2 * 1 * 2 * 4 * 32 * 32 * 4))
# One head of keys and values on two ranks: both copies' gradients meet, which is tp's.
traffic tp 'tp world' --distributed.tp_size=2 --model.num_key_value_heads=1
traffic cp 'cp dp' --distributed.cp_size=2
finish
