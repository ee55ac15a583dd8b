#!/usr/bin/env bash
# bench.sh BUILD: the benchmarks, with what they were taken on. Tables here, JSON in BUILD/bench.
#
# Steps: each configuration of bench/step. Peers: each bench/peers/torch-*.sh that finds its program
# prints one JSON object of the same names for the same configuration, so that lines divide: behind
# a peer's line stands our rate over its. bench/peers/run.sh takes turns for a steadier quotient.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
program=$build/cyclotron
out=$build/bench
mkdir -p "$out"

# field FILE NAME: a number of a JSON object.
field() {
    sed -n "s/.*\"$2\": *\\([-+0-9.eE]*\\).*/\\1/p" "$1" | head -n 1
}

"$program" --version >"$out/program.txt"
{
    grep -m 1 '^model name' /proc/cpuinfo | cut -d : -f 2 | sed 's/^ *//'
    printf '%s cores, %s\n' "$(nproc)" "$(uname -sr)"
    git describe --always --dirty 2>/dev/null || true
} >"$out/machine.txt"
cat "$out/machine.txt"

for what in kernel comm; do
    "$program" bench "$what" --json >"$out/$what.json.part"
    mv "$out/$what.json.part" "$out/$what.json"
    printf '\n%s: %s\n' "$what" "$out/$what.json"
done

printf '\n%-28s %-14s %9s %9s %9s %8s %8s %8s\n' step by tok/s least most MFU GiB "first s"
row() {
    printf '%-28s %-14s %9.1f %9.1f %9.1f %7.2f%% %8.2f %8.1f\n' "$1" "$2" "$(field "$3" tok_s)" \
        "$(field "$3" tok_s_min)" "$(field "$3" tok_s_max)" \
        "$(awk "BEGIN { print 100 * $(field "$3" mfu) }")" "$(field "$3" peak_rss_gb)" \
        "$(field "$3" first_step_s)"
}
# quotient OURS THEIRS: of rates, of memory and of the time to the first step
quotient() {
    awk "BEGIN { printf \"%43s %9.2f %37.2f %8.2f\\n\", \"ours / theirs\",
        $(field "$1" tok_s) / $(field "$2" tok_s),
        $(field "$1" peak_rss_gb) / $(field "$2" peak_rss_gb),
        $(field "$1" first_step_s) / $(field "$2" first_step_s) }"
}
for config in bench/step/*.json; do
    [ -e "$config" ] || { echo "bench: error: no configuration in bench/step" >&2; exit 1; }
    name=$(basename "$config" .json)
    "$program" bench step "$config" --json >"$out/step-$name.json"
    row "$name" cyclotron "$out/step-$name.json"
    for peer in bench/peers/torch-*.sh; do
        [ -e "$peer" ] || continue
        by=$(basename "$peer" .sh)
        status=0
        bash "$peer" "$config" >"$out/step-$name-$by.json" || status=$?
        case $status in
        0)
            row "$name" "$by" "$out/step-$name-$by.json"
            quotient "$out/step-$name.json" "$out/step-$name-$by.json"
            ;;
        77) printf '%-28s %-12s %12s\n' "$name" "$by" "not here" ;; # as tests skip
        *) echo "bench: error: $peer $config ended with status $status" >&2; exit 1 ;;
        esac
    done
done

# What recomputation costs, from the two lines above.
awk "BEGIN { printf \"full recomputation takes %.0f %% more time\\n\",
    100 * ($(field "$out/step-smollm-135m-bf16.json" tok_s) /
    $(field "$out/step-smollm-135m-bf16-recompute.json" tok_s) - 1) }"
