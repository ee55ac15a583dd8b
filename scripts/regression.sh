#!/usr/bin/env bash
# regression.sh [BUILD] [COMMIT]: the speed of a training step against the last commit's, in one run.
#
# Builds COMMIT (the one before the working tree's: HEAD where something is changed, else HEAD~1) in
# BUILD/before and runs both programs in turns, ROUNDS times (7), on CONFIG. Fails where the median of
# the rounds' quotients is below LEAST (0.93). For a quiet machine: other work meets both of a round,
# but under load single rounds were seen from 0.86 to 6.9.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
config=${CONFIG:-bench/step/hidden-256-bf16.json}
least=${LEAST:-0.93}
jobs=${JOBS:-$(nproc)}

if ! git rev-parse --quiet --verify HEAD~1 >/dev/null 2>&1; then
    echo "regression: no commit before this one here" # an archive, or a clone without history
    exit 0
fi
commit=${2:-}
if [ -z "$commit" ]; then
    if git diff --quiet HEAD; then commit=HEAD~1; else commit=HEAD; fi
fi
before=$build/before
rm -rf "$before/source"
mkdir -p "$before/source"
git archive "$commit" | tar -x -C "$before/source"
cmake -S "$before/source" -B "$before/build" -DCMAKE_BUILD_TYPE=Release -DCY_TESTS=OFF >/dev/null
cmake --build "$before/build" -j "$jobs" --target cyclotron >"$before/log" ||
    { tail -n 30 "$before/log"; exit 1; }

rate() {
    "$1" bench step "$config" --json | sed -n 's/.*"tok_s": *\([-+0-9.eE]*\).*/\1/p'
}

: >"$before/quotients"
for _ in $(seq "${ROUNDS:-7}"); do
    was=$(rate "$before/build/cyclotron")
    is=$(rate "$build/cyclotron")
    awk "BEGIN { print $is / $was }" >>"$before/quotients"
done
median=$(sort -g "$before/quotients" | awk '{ v[NR] = $1 }
    END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }')
printf 'regression: %s: %s of the speed of %s (%s rounds, %s to %s)\n' "$(basename "$config" .json)" \
    "$median" "$(git rev-parse --short "$commit")" "$(wc -l <"$before/quotients")" \
    "$(sort -g "$before/quotients" | head -n 1)" "$(sort -g "$before/quotients" | tail -n 1)"
awk "BEGIN { exit !($median >= $least) }" ||
    { echo "regression: error: slower than $least of the last commit" >&2; exit 1; }
