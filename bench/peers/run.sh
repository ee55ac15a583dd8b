#!/usr/bin/env bash
# run.sh CONFIG [ROUNDS]: our training step beside PyTorch's, in turns, so that what else the machine
# does meets all alike. Prints each one's median over rounds and our quotient; 77 without PyTorch.
#
# PEERS="torch-eager" leaves others out. FIGURES=FILE keeps every line of JSON.
set -euo pipefail
cd "$(dirname "$0")/../.."
config=$1
rounds=${2:-5}
peers=${PEERS:-torch-eager torch-compiled}
lines=${FIGURES:-$(mktemp)}
: >"$lines"

for _ in $(seq "$rounds"); do
    build/cyclotron bench step "$config" --json | sed 's/^{/{"by": "cyclotron", /' >>"$lines"
    for peer in $peers; do
        bash "bench/peers/$peer.sh" "$config" | sed "s/^{/{\"peer\": \"$peer\", /" >>"$lines"
    done
done

# median FIELD PATTERN
median() {
    grep -- "$2" "$lines" | sed -n "s/.*\"$1\": *\\([-+0-9.eE]*\\).*/\\1/p" | sort -g |
        awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

ours='"by": "cyclotron"'
printf '%-16s %10s %9s %8s %12s\n' "$(basename "$config" .json)" tok/s "peak GB" MFU "first step s"
row() {
    printf '%-16s %10.1f %9.2f %7.1f%% %12.1f' "$1" "$(median tok_s "$2")" \
        "$(median peak_rss_gb "$2")" "$(awk "BEGIN { print 100 * $(median mfu "$2") }")" \
        "$(median first_step_s "$2")"
}
row cyclotron "$ours"
printf '\n'
for peer in $peers; do
    theirs="\"peer\": \"$peer\""
    row "$peer" "$theirs"
    awk "BEGIN { printf \"   ours / theirs %.2f, memory %.2f\\n\",
        $(median tok_s "$ours") / $(median tok_s "$theirs"),
        $(median peak_rss_gb "$ours") / $(median peak_rss_gb "$theirs") }"
done
