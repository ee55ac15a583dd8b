#!/usr/bin/env bash
# cyclotron config check: what a configuration names is opened as training opens it, and folders that
# it would write to are looked at. Whatever train refuses at its start, check has said before, with
# the same words.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# refused TEXT ARGUMENTS...: check says TEXT and ends with 2; train ends with 1 or 2 and says it too.
refused() {
    local text=$1 status
    shift
    expect 2 config check "$folder/tiny.json" "$@"
    is out ""
    says err "$text"
    status=0
    "$cyclotron" train "$folder/tiny.json" "$@" >"$folder/out" 2>"$folder/err" || status=$?
    says err "$text"
    if [ "$status" -ne 1 ] && [ "$status" -ne 2 ]; then
        echo "FAIL: train ended with $status, and '$text' was to be refused"
        failures=$((failures + 1))
    fi
}

expect 0 config check "$folder/tiny.json"
says out "tiny.json: no errors"

# Data.
refused "model.vocab_size = 280: the data's tokenizer has 300 tokens" --model.vocab_size=280
printf 'no json' >"$folder/bad.json"
refused "$folder/bad.json: line 1" --dataset.tokenizer="$folder/bad.json"
printf 'the king.\n' >"$folder/short.txt"
refused "tokens to train on, a sample of seq_length 32 needs 33" --dataset.name="$folder/short.txt"
refused "the validation part has" --dataset.validation_fraction=0.0001 --logging.eval_frequency=4
mkdir "$folder/empty"
refused "$folder/empty" --dataset.name="$folder/empty"
expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/shards" "$folder/text.txt"
"$cyclotron" tokenizer train --vocab-size=290 --out="$folder/other.json" "$folder/text.txt" \
    >"$folder/log" || exit 1
expect 0 config check "$folder/tiny.json" --dataset.name="$folder/shards"
refused "$folder/shards" --dataset.name="$folder/shards" --dataset.tokenizer="$folder/other.json"

# Where training begins.
refused "$folder/empty holds no checkpoint" --checkpoint.load_path="$folder/empty"
train 0 saved --training.total_train_steps=2 --checkpoint.save_dir="$folder/saves" \
    --checkpoint.save_frequency=2
expect 0 config check "$folder/tiny.json" --checkpoint.load_path="$folder/saves"
refused "is of another model: 1 difference" --model.intermediate_size=128 \
    --checkpoint.load_path="$folder/saves"
refused "is of another model: 1 difference" --model.intermediate_size=128 \
    --checkpoint.save_dir="$folder/saves" --checkpoint.resume=auto
rm "$folder/saves/step-00000002/"*.json
refused "$folder/saves holds no checkpoint" --checkpoint.load_path="$folder/saves"

# Where training writes: below a file there is no folder, not even for root.
hint="  hint: give a folder that you may write to"
refused "logging.run_dir = \"$folder/short.txt/run\": make folder: Not a directory" \
    --logging.run_dir="$folder/short.txt/run"
says err "$hint"
refused "checkpoint.save_dir = \"$folder/short.txt/a/b/\": make folder: Not a directory" \
    --checkpoint.save_dir="$folder/short.txt/a/b/"
says err "$hint"
if [ "$(id -u)" != 0 ]; then
    mkdir -m 0555 "$folder/closed"
    for key in logging.run_dir checkpoint.save_dir; do
        refused "$key = \"$folder/closed\": write into it: Permission denied" --$key="$folder/closed"
        refused "$key = \"$folder/closed/x/y\": make folder: Permission denied" \
            --$key="$folder/closed/x/y"
        says err "$hint"
    done
fi
expect 2 config check "$folder/tiny.json" --json --logging.run_dir="$folder/short.txt/run" \
    --checkpoint.save_dir="$folder/short.txt/saves" --model.vocab_size=280
same "faults of outputs and data" 3 "$(grep -o '"error":' "$folder/out" | wc -l)"
expect 0 config check "$folder/tiny.json" --logging.run_dir="$folder/new/run" \
    --checkpoint.save_dir="$folder/new/saves"
check "check makes nothing" test ! -e "$folder/new"
expect 0 config check --for=plan "$folder/tiny.json" --logging.run_dir="$folder/short.txt/run"

# Data and checkpoint are two faults of one answer, and a plan asks for neither.
expect 2 config check "$folder/tiny.json" --json --model.vocab_size=280 \
    --checkpoint.load_path="$folder/empty"
says out '{"errors": [{"error": "dataset: model.vocab_size = 280'
says out '{"error": "checkpoint: '
expect 0 config check --for=plan "$folder/tiny.json" --model.vocab_size=280 \
    --checkpoint.load_path="$folder/empty"

finish
