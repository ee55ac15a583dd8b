#!/usr/bin/env bash
# Whichever allocation of a command fails, the command says that memory was missing and ends with 1,
# or does its work all the same; it neither crashes nor hangs nor ends well with another result.
# tests/preload/failing_memory.c lets the first fail, then the second, and so on until none is left.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

if [ ! -e "${FAILING_MEMORY:-}" ]; then
    echo "skipped: sanitizers have an allocator of their own"
    exit 77
fi
runs=0
messages=0
faults() { failures=$((failures + 1)); }

# every STRIDE ARGUMENTS...: the command with each allocation failing in turn; after the first
# hundred only each STRIDE-th, where there are thousands. AGAIN=COMMAND makes things as they were.
every() {
    local stride=$1 at=1 status unhindered
    shift
    ${AGAIN:-true}
    "$cyclotron" "$@" >"$folder/wanted" 2>/dev/null </dev/null
    unhindered=$?
    while :; do
        ${AGAIN:-true}
        rm -f "$folder/mark"
        status=0
        CY_FAIL_AT=$at CY_FAIL_MARK=$folder/mark LD_PRELOAD=$FAILING_MEMORY timeout 60 \
            "$cyclotron" "$@" >"$folder/out" 2>"$folder/err" </dev/null || status=$?
        [ -e "$folder/mark" ] || break
        runs=$((runs + 1))
        if [ "$status" = 1 ] && grep -q '^cyclotron: error: .*memory' "$folder/err"; then
            messages=$((messages + 1))
        elif [ "$status" != "$unhindered" ] || ! cmp -s "$folder/out" "$folder/wanted"; then
            echo "FAIL: allocation $at: cyclotron $* ended with $status"
            sed 's/^/    /' "$folder/err" | head -5
            faults
        fi
        at=$((at + (at < 100 ? 1 : stride)))
    done
    if [ "$at" -lt 3 ]; then
        echo "FAIL: cyclotron $* allocates nothing"
        faults
    fi
}

# A kernel has no status and oneDNN's products keep tables of their own: fp64 does without them.
fp64=--model.dtype=fp64
every 1 config check "$source_folder/tests/cli/expected/bad.json"
every 1 config check "$source_folder/tests/cli/expected/bad.json" --json
every 1 config show "$folder/tiny.json"
every 1 version --json
every 3 plan "$folder/tiny.json" "$fp64" --distributed.pp_size=2 --distributed.dp_size=2
every 3 plan "$folder/tiny.json" "$fp64" --json --distributed.tp_size=2 --distributed.pp_size=2
every 3 schedule --engine=interleaved --stages=2 --microbatches=4 --chunks=2 --svg="$folder/s.svg"
every 3 schedule --engine=zero_bubble --stages=2 --microbatches=3 --json

head -n 40 "$folder/text.txt" >"$folder/short.txt"
sed 's/.*/{"text": "&"}/' "$folder/short.txt" | gzip >"$folder/short.jsonl.gz"
every 3 tokenizer train --vocab-size=270 --out="$folder/small.json" "$folder/short.txt"
every 3 tokenizer encode "$folder/tokenizer.json" "$folder/short.txt"
"$cyclotron" tokenizer encode "$folder/tokenizer.json" "$folder/short.txt" >"$folder/ids"
every 3 tokenizer decode "$folder/tokenizer.json" "$folder/ids"
fresh() { rm -rf "$folder/made" "$folder/run"; }
AGAIN=fresh every 3 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/made" \
    "$folder/short.jsonl.gz" "$folder/short.txt"
every 3 data inspect "$folder/made"

train 0 kept "$fp64" --checkpoint.save_dir="$folder/saves" --training.total_train_steps=2 \
    --logging.eval_frequency=2
saved=$folder/saves/step-00000002
every 3 checkpoint inspect "$saved"
every 3 checkpoint inspect "$saved" --json
every 7 checkpoint compare "$saved" "$saved" --json
every 7 checkpoint verify "$saved"
AGAIN=fresh every 7 checkpoint export "$saved" --out="$folder/made"
fresh
"$cyclotron" checkpoint export "$saved" --out="$folder/hf" >/dev/null
AGAIN=fresh every 7 checkpoint import "$folder/hf" --out="$folder/made"
every 3 metrics "$folder/kept"
every 3 metrics "$folder/kept" --plot
every 3 metrics "$folder/kept" --svg="$folder/loss.svg"
every 3 metrics "$folder/kept" --json
every 7 generate "$saved" --prompt="the king" --max-tokens=2 --temperature=0 --threads=1
AGAIN=fresh every 17 train "$folder/tiny.json" "$fp64" --logging.run_dir="$folder/run" \
    --training.total_train_steps=3 --training.lr_schedule=constant --training.warmup_steps=0 \
    --distributed.dp_size=2 --checkpoint.load_path="$saved"

echo "$runs allocations failed, $messages of them with a message, the others without harm"
[ "$messages" -ge 1000 ] || { echo "FAIL: hardly any of them failed"; faults; }
finish
