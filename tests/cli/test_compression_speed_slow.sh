#!/usr/bin/env bash
# Over a slow link compressed gradients make steps shorter: int8 than none, topk than int8.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# step KIND: milliseconds of a step on two ranks over 20 MB a second.
step() {
    expect 0 bench step "$source_folder/bench/step/hidden-256-bf16.json" --json --warmup=1 \
        --steps=5 --training.micro_batch_size=2 --distributed.dp_size=2 --distributed.threads_per_rank=1 \
        --distributed.bucket_mb=4 --distributed.compression="$1" --link-gb-s=0.02 --link-us=50
    sed -E 's/.*"tok_s": ([0-9.e+]+).*/\1/' "$folder/out" | awk '{ print 1024 / $1 * 1e3 }'
}

none=$(step none)
int8=$(step int8)
topk=$(step topk)
echo "a step over a slow link: $none ms dense, $int8 ms int8, $topk ms topk"
if ! awk "BEGIN { exit !($int8 < 0.6 * $none && $topk < 0.8 * $int8) }"; then
    echo "FAIL: not faster"
    failures=$((failures + 1))
fi
finish
