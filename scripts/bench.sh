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
    case $name in many-small | overlap-* | *-recompute) continue ;; esac # nothing to compare with
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

# Five starts one after the other: how long after the process each one's first step was done, less a step.
first=$out/first-steps.txt
: >"$first"
for _ in 1 2 3 4 5; do
    "$program" bench step bench/step/smollm-135m-bf16.json --warmup=1 --steps=1 --json >"$out/start.json"
    awk "BEGIN { printf \"%.2f\\n\", $(field "$out/start.json" first_step_s) - 2048 / $(field "$out/start.json" tok_s) }" \
        >>"$first"
done

# A model with random weights of the first shape: its first token after 512 and its further ones, and
# 128 tokens behind next to nothing, as llama-bench measures what the aim was taken from.
"$program" bench checkpoint bench/step/smollm-135m-bf16.json --folder="$out" --rounds=1 --json \
    >"$out/checkpoint.json"
"$program" bench decode "$out/saves" --prompt-tokens=512 --json >"$out/decode-512.json"
"$program" bench decode "$out/saves" --prompt-tokens=16 --tokens=128 --json >"$out/decode.json"
rm -rf "$out/saves"

# What is aimed at, and what came out. A line without a second figure has no peer here.
printf '\n%-52s %8s %8s\n' "aim" "at least" "here"
# aim WHAT BOUND VALUE
aim() { printf '%-52s %8s %8s\n' "$1" "$2" "$3"; }
# over A B FIELD: a field of one file over that of another.
over() {
    if [ -s "$1" ] && [ -s "$2" ]; then
        awk "BEGIN { printf \"%.2f\", $(field "$1" "$3") / $(field "$2" "$3") }"
    else
        printf '%s' '-'
    fi
}
step=$out/step-smollm-135m
for dtype in bf16 fp32; do
    bounds=(1.4 1.75)
    [ $dtype = bf16 ] || bounds=(1.2 1.4)
    aim "training, $dtype, over PyTorch compiled" "${bounds[0]}" \
        "$(over "$step-$dtype.json" "$step-$dtype-torch-compiled.json" tok_s)"
    aim "training, $dtype, over PyTorch eager" "${bounds[1]}" \
        "$(over "$step-$dtype.json" "$step-$dtype-torch-eager.json" tok_s)"
done
for name in smollm-135m-bf16-1-thread sequence-4096-bf16 hidden-1024-bf16 hidden-256-bf16; do
    aim "$name, over PyTorch compiled" 1.3 \
        "$(over "$out/step-$name.json" "$out/step-$name-torch-compiled.json" tok_s)"
done
aim "share of the matrix peak, bf16" 0.80 "$(field "$step-bf16.json" mfu)"
aim "share of the matrix peak, fp32" 0.95 "$(field "$step-fp32.json" mfu)"
aim "memory, over PyTorch compiled (at most)" 0.80 \
    "$(over "$step-bf16.json" "$step-bf16-torch-compiled.json" peak_rss_gb)"
aim "memory, full recomputation (at most)" 0.70 \
    "$(over "$step-bf16-recompute.json" "$step-bf16-torch-compiled.json" peak_rss_gb)"
aim "first step, seconds beyond a step's (at most)" 1.0 "$(sort -g "$first" | sed -n 3p)"
aim "time that full recomputation adds (at most)" 0.35 "$(awk "BEGIN { printf \"%.2f\",
    $(field "$step-bf16.json" tok_s) / $(field "$step-bf16-recompute.json" tok_s) - 1 }")"
# shares TITLE FILE: of the best pass over memory, and of the weights read beside each run.
shares() {
    aim "$1, of the best read rate" 0.95 "$(printf %.2f "$(field "$2" share_of_read)")"
    aim "$1, of reading beside" 0.95 "$(printf %.2f "$(field "$2" share_beside)")"
}
shares "decoding, bf16" "$out/decode.json"
shares "the same behind 512 tokens" "$out/decode-512.json"
# 2 operations a parameter and token, as llama.cpp's share of 0.60 was counted.
rate=$(field "$step-bf16.json" peak_gflop_s)
first_ms=$(field "$out/decode-512.json" first_token_ms)
aim "512 tokens read, bf16, share of the matrix peak" 0.75 "$(awk "BEGIN { printf \"%.2f\",
    512 * 2 * $(field "$step-bf16.json" params) / 1e6 / $first_ms / $rate }")"
