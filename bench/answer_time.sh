#!/usr/bin/env bash
# What an answer of T tokens to a prompt of P costs, predicted beside measured. The first token is a
# parabola over the prompt's length, for each of its tokens goes through all weights and attends to
# those before it; a further token is a line over its context. Both go through what is measured
# behind 64, 512 and 1024 tokens (the line through the first and the last). Asked are then long
# answers to short prompts and short ones to long.
#
#     bench/answer_time.sh CHECKPOINT [bench decode's options]
#
# One line an answer: what prefill and decode take, in ms, predicted and measured, and how far the
# sum is off. Calls of the program take turns; medians of ROUNDS (5). Ends with 1 where a sum is off
# by more than a tenth.
set -euo pipefail
cyclotron=${CYCLOTRON:-build/cyclotron}
python3 - "$cyclotron" "${ROUNDS:-5}" "$@" <<'PYTHON'
import json, statistics, subprocess, sys

program, rounds, checkpoint, options = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
known = [(64, 32), (512, 32), (1024, 32)]
asked = [(16, 256), (256, 64), (768, 128), (1536, 16)]
first = {case: [] for case in known + asked}    # ms of the first token
further = {case: [] for case in known + asked}  # ms of each token after it
for turn in range(rounds):
    for case in known + asked:
        line = subprocess.run(
            [program, "bench", "decode", checkpoint, f"--prompt-tokens={case[0]}",
             f"--tokens={case[1]}", "--repeats=1", "--json", *options],
            check=True, capture_output=True, text=True).stdout
        told = json.loads(line)
        first[case].append(told["first_token_ms"])
        further[case].append(1000 / told["decode_tok_s"])
first = {case: statistics.median(values) for case, values in first.items()}
further = {case: statistics.median(values) for case, values in further.items()}


def through(points):  # the polynomial, after Lagrange
    def value(x):
        total = 0
        for i, (xi, yi) in enumerate(points):
            for k, (xk, _) in enumerate(points):
                yi *= 1 if k == i else (x - xk) / (xi - xk)
            total += yi
        return total
    return value


def context(case):  # of the middle one of the tokens after the first
    return case[0] + case[1] / 2


prefill = through([(case[0], first[case]) for case in known])
token = through([(context(case), further[case]) for case in (known[0], known[-1])])
worst = 0
print("measured:", "; ".join(f"behind {case[0]} tokens {first[case]:.1f} ms and then {further[case]:.2f} a token"
                             for case in known))
print("prompt answer   prefill: predicted measured   decode: predicted measured     off   prefill's part")
for case in asked:
    told = [max(prefill(case[0]), 0), (case[1] - 1) * token(context(case))]
    real = [first[case], (case[1] - 1) * further[case]]
    off = sum(told) / sum(real) - 1
    worst = max(worst, abs(off))
    print(f"{case[0]:6d} {case[1]:6d} {told[0]:20.1f} {real[0]:8.1f} {told[1]:20.1f} {real[1]:8.1f} "
          f"{100 * off:7.1f} %  {100 * real[0] / sum(real):5.0f} %")
sys.exit(0 if worst <= 0.1 else 1)
PYTHON
