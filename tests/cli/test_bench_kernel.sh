#!/usr/bin/env bash
# `cyclotron bench kernel`: every operator has its line, JSON is JSON, the figures are figures.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

small=(--tokens=33 --seq=20 --hidden=48 --ffn=40 --heads=4 --kv-heads=2 --head-dim=12 --vocab=100
    --flat=1000)

expect 0 bench kernel "${small[@]}" --threads=1 --json
# One operator a line, all seven fields in their order, between the brackets of one array.
number='-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?'
line='^  \{"op": "[a-z0-9_]+", "dtype": "(fp32|bf16)", "shape": "[0-9x]+", "isa": "[a-z0-9_]+", '
line+="\"gflop_s\": $number, \"gb_s\": $number, \"share_of_peak\": $number\\},?\$"
lines=$(grep -cE "$line" "$folder/out") || true
same "the array" "[ ]" "$(head -n 1 "$folder/out") $(tail -n 1 "$folder/out")"
same "lines that are no operators" $((lines + 2)) "$(wc -l <"$folder/out")"
same "commas" $((lines - 1)) "$(grep -c '},$' "$folder/out")"
same "operators, each in two dtypes" "$lines" \
    $((2 * $(grep -o '"op": "[^"]*"' "$folder/out" | sort -u | wc -l)))
for operator in matmul attention_backward norm_backward adamw softmax_grad; do
    says out "\"op\": \"$operator\""
done
same "figures that are not above zero" 0 \
    "$(grep -cE '"(gb_s|share_of_peak)": (-|0(\.0+)?[,}])' "$folder/out" || true)"
says out '"op": "matmul", "dtype": "fp32", "shape": "33x80x48"'
says out '"op": "softmax_grad", "dtype": "bf16", "shape": "33x100"'

expect 0 bench kernel "${small[@]}" --threads=2 --dtype=fp32 --op=norm
says out "norm_backward"
says out "of copying"
expect 2 bench kernel "${small[@]}" --op=gelu
says err "--op=gelu: no operator's name begins so"
expect 2 bench kernel "${small[@]}" --op=norm_forwards
expect 2 bench kernel --heads=9 --kv-heads=2
says err "is not a multiple of"
expect 2 bench kernel "${small[@]}" --isa=none
says err "none"
finish
