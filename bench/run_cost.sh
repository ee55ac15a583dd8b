#!/usr/bin/env bash
# What a run does beside its steps, on one rank: reading, agreements on signals and data, metrics, events,
# console lines and the checks of its folders. A tiny model's step in `cyclotron train` with all of it, less
# the same step in `cyclotron bench step`, in wall and in processor time. Neither grows with the model.
#
#     bench/run_cost.sh STEP_S CORES
#
# STEP_S is how long a step of the shape takes that the costs are divided by, CORES how many cores it has.
# Prints both costs in ms and as figures of make bench; CYCLOTRON is the program, ROUNDS (5) how many turns
# are taken. Each turn is the difference of a long and a short call, so that starts do not count; medians.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0"; exit 2; }
cd "$(dirname "$0")/.."
cyclotron=${CYCLOTRON:-build/cyclotron}
folder=$(mktemp -d "${TMPDIR:-/tmp}/cyclotron-run-cost-XXXXXX")
trap 'rm -rf "$folder"' EXIT
# shellcheck source=tests/cli/tiny.sh
. tests/cli/tiny.sh
short=500 long=2500

# seconds COMMAND...: wall and processor time of it, as "wall user system".
seconds() {
    local TIMEFORMAT='%R %U %S'
    { time "$@" >"$folder/out" 2>"$folder/err" </dev/null; } 2>&1 || { cat "$folder/err" >&2; exit 1; }
}

trained() {
    rm -rf "$folder/run" "$folder/saves"
    seconds "$cyclotron" train "$folder/tiny.json" --training.total_train_steps="$1" \
        --training.lr_decay_steps="$1" --logging.run_dir="$folder/run" --logging.tensorboard=true \
        --checkpoint.save_dir="$folder/saves"
}

stepped() {
    seconds "$cyclotron" bench step "$folder/tiny.json" --warmup=1 --steps="$1" --json
}

# difference LONG SHORT: wall and processor milliseconds a step.
difference() {
    awk -v one="$1" -v other="$2" -v steps=$((long - short)) 'BEGIN {
        split(one, a, " ")
        split(other, b, " ")
        printf "%.5f %.5f\n", 1000 * (a[1] - b[1]) / steps, 1000 * (a[2] + a[3] - b[2] - b[3]) / steps
    }'
}

# median FIELD: of the turns.
median() {
    awk -v field="$1" '{ print $field }' "$folder/turns" | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

for ((turn = 0; turn < ${ROUNDS:-5}; turn++)); do
    with=$(difference "$(trained $long)" "$(trained $short)")
    bare=$(difference "$(stepped $long)" "$(stepped $short)")
    echo "$with $bare" | awk '{ print $1 - $3, $2 - $4, $1, $3 }' | tee -a "$folder/turns" |
        awk '{ printf "a step with all of it %.3f ms, bare %.3f ms: %.3f ms more, %.3f ms of processors\n", $3, $4, $1, $2 }'
done
awk -v wall="$(median 1)" -v processor="$(median 2)" -v step="$1" -v cores="$2" 'BEGIN {
    printf "run_cost.wall_ms %.4f ms\nrun_cost.processor_ms %.4f ms\n", wall, processor
    printf "run_cost.wall_of_step %.6f of-step\n", wall / 1000 / step
    printf "run_cost.processor_of_step %.6f of-step\n", processor / 1000 / (step * cores)
}'
