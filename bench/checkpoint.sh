#!/usr/bin/env bash
# Saving and loading a whole training state, as shares of plain files on the same disk, and what
# resharding costs. Prints one table from one run.
#
#   bench/checkpoint.sh [FOLDER]     FOLDER is on the disk in question (build/bench)
#
# The state is that of SmolLM-135M in bf16: masters and both moments, 12 bytes a parameter, 1.50 GB of 2^30 bytes.
# CYCLOTRON is the program, ROUNDS (3) how often each figure is taken; medians are printed.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${CYCLOTRON:-build/cyclotron}
parent=${1:-build/bench}
config=bench/step/smollm-135m-bf16.json
mkdir -p "$parent"
folder=$(mktemp -d "$parent/checkpoint-XXXXXX")
trap 'rm -rf "$folder"' EXIT

# field NAME: a number of the last line that was measured.
field() {
    sed -n "s/.*\"$1\": *\\([-+0-9.eE]*\\).*/\\1/p" "$folder/json"
}

# measure WHAT OPTION...: runs the benchmark and prints a row.
measure() {
    local what=$1
    shift
    "$program" bench checkpoint "$config" --json --folder="$folder" --rounds="${ROUNDS:-3}" "$@" \
        --distributed.threads_per_rank=1 --training.seq_length=64 --training.micro_batch_size=1 \
        >"$folder/json"
    awk -v what="$what" -v bytes="$(field bytes)" -v save="$(field save_s)" \
        -v write="$(field plain_write_s)" -v load="$(field load_s)" -v read="$(field plain_read_s)" '
        function rate(s) { return s > 0 ? sprintf("%.2f", bytes / s / 2 ^ 30) : "-" }
        function share(plain, s) { return s > 0 ? sprintf("%.2f", plain / s) : "-" }
        BEGIN {
            printf "%-34s %8s %8s %7s %8s %8s %7s\n", what, rate(save), rate(write),
                share(write, save), rate(load), rate(read), share(read, load)
        }'
}

"$program" --version | head -n 1
printf '%-34s %8s %8s %7s %8s %8s %7s\n' "GB/s" save plain share load plain share
measure "1 rank" --distributed.dp_size=1
save=$(field save_s)
measure "2 ranks, dp 2, zero 1" --distributed.dp_size=2 --distributed.zero_stage=1
measure "8 ranks, dp 8, zero 3" --distributed.dp_size=8 --distributed.zero_stage=3
same=$(field load_s)
measure "8 -> 8 ranks" --distributed.dp_size=8 --distributed.zero_stage=3 --load="$folder/saves"
same=$(awk -v a="$same" -v b="$(field load_s)" 'BEGIN { print (a + b) / 2 }')
measure "8 -> 3 ranks" --distributed.dp_size=3 --distributed.zero_stage=3 --load="$folder/saves"
awk -v a="$(field load_s)" -v b="$same" 'BEGIN { printf "resharding 8 -> 3: %.2f of loading on 8\n", a / b }'

# What a save each 50 steps takes of the time: one rank with all cores, 2 x 1024 tokens a step.
rate=$("$program" bench step "$config" --json | sed -n 's/.*"tok_s": *\([-+0-9.eE]*\).*/\1/p')
awk -v save="$save" -v rate="$rate" 'BEGIN {
    step = 2048 / rate
    printf "a save each 50 steps of %.2f s: %.1f %% of the time\n", step,
        100 * save / (50 * step + save)
}'
