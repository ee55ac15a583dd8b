#!/usr/bin/env bash
# `cyclotron bench kernel`: every operator has its line, JSON is JSON, the figures are figures.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

small=(--tokens=33 --seq=20 --hidden=48 --ffn=40 --heads=4 --kv-heads=2 --head-dim=12 --vocab=100
    --flat=1000 --threads=2)

expect 0 bench kernel "${small[@]}" --json
python3 - "$folder/out" <<'PYTHON' || failures=$((failures + 1))
import json, sys
lines = json.load(open(sys.argv[1]))
fields = {"op", "dtype", "shape", "isa", "gflop_s", "gb_s", "share_of_peak"}
assert all(set(line) == fields for line in lines), lines[0]
assert {line["dtype"] for line in lines} == {"fp32", "bf16"}
operators = {line["op"] for line in lines}
assert {"matmul", "attention_backward", "norm_backward", "adamw", "softmax_grad"} <= operators
assert len(lines) == 2 * len(operators)
assert all(line["gb_s"] > 0 and line["share_of_peak"] > 0 for line in lines)
shapes = {line["op"]: line["shape"] for line in lines}
assert shapes["matmul"] == "33x80x48", shapes["matmul"]
assert shapes["softmax_grad"] == "33x100", shapes["softmax_grad"]
PYTHON

expect 0 bench kernel "${small[@]}" --dtype=fp32 --op=norm
says out "norm_backward"
says out "of copying"
expect 2 bench kernel --heads=9 --kv-heads=2
says err "is not a multiple of"
expect 1 bench kernel "${small[@]}" --isa=none
says err "none"
finish
