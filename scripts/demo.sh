#!/usr/bin/env bash
# From nothing to a model that speaks: `make demo`. Takes a text, trains a tokenizer and a small
# model on its first 95 %, and says how many bits per byte the rest costs the model, beside xz.
#
# From the environment: SETUP=no installs nothing; TEXT=FILE takes another text than the King James
# Bible; BUILD=FOLDER is where the program is built (build); DEMO=FOLDER is where all of it goes
# (BUILD/demo); TRAIN_SECONDS limits the training; CYCLOTRON=PROGRAM takes a program that is built
# already.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build}
folder=${DEMO:-$build/demo}
config=examples/demo.json
train_seconds=${TRAIN_SECONDS:-200}
budget_seconds=285 # all of it, the build included, is to be done within five minutes
held_out=0.05

say() {
    printf 'demo: %s\n' "$*"
}

fail() {
    printf 'demo: error: %s\n' "$1" >&2
    if [ $# -gt 1 ]; then
        printf '  hint: %s\n' "$2" >&2
    fi
    exit 1
}

# number NAME: the number behind a name in the JSON on stdin.
number() {
    sed -n "s/.*\"$1\": *\\([-+0-9.eE]*\\).*/\\1/p" | head -n 1
}

# setting NAME: a number of the resolved configuration.
setting() {
    local found
    found=$(number "$1" <"$folder/resolved.json")
    [ -n "$found" ] || fail "$config resolves to no $1, see $folder/resolved.json"
    printf '%s' "$found"
}

# value EXPRESSION [FORMAT]: arithmetic with awk.
value() {
    awk "BEGIN { printf \"${2:-%d}\", $1 }"
}

prepare_program() {
    if [ -n "${CYCLOTRON:-}" ]; then
        program=$CYCLOTRON
        return
    fi
    if [ "${SETUP:-yes}" != no ]; then
        make --no-print-directory setup
    fi
    say "building"
    make --no-print-directory program >"$folder/build.log" 2>&1 ||
        { tail -n 20 "$folder/build.log" >&2; fail "the build failed, see $folder/build.log"; }
    program=$build/cyclotron
}

prepare_text() {
    if [ -n "${TEXT:-}" ]; then
        [ -r "$TEXT" ] || fail "TEXT=$TEXT cannot be read"
        text=$TEXT
    else
        command -v bible >/dev/null ||
            fail "the text comes from the Debian package bible-kjv, which is not here" \
                "make setup installs it; TEXT=FILE takes another text"
        text=$folder/text.txt
        bible -f Gen1:1-Rev22:21 >"$text.part"
        mv "$text.part" "$text"
    fi
    bytes=$(wc -c <"$text")
    [ "$bytes" -ge 100000 ] || fail "$text has $bytes bytes, a model needs 100000 or more"
    say "the text is $text, $bytes bytes"
}

prepare_data() {
    local vocab
    vocab=$(setting vocab_size)
    # The held-out part teaches the tokenizer nothing either.
    head -c "$(value "$bytes * (1 - $held_out)")" "$text" >"$folder/train.txt"
    "$program" tokenizer train --vocab-size="$vocab" --out="$folder/tokenizer.json" \
        "$folder/train.txt"
    rm -rf "$folder/tokens"
    "$program" data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/tokens" "$text"
}

# How many steps fit into the time, by measuring some: the schedule of the learning rate then ends
# with the training.
count_steps() {
    local left speed tokens
    left=$((budget_seconds - SECONDS - 25))
    if [ "$left" -lt "$train_seconds" ]; then
        left=$((left > 20 ? left : 20))
        say "$SECONDS s of $budget_seconds are gone: training gets $left s instead of" \
            "$train_seconds, a run that need not build gets more"
        train_seconds=$left
    fi
    "$program" bench step "$config" --json >"$folder/speed.json"
    speed=$(number tok_s <"$folder/speed.json")
    [ -n "$speed" ] || fail "bench step told no speed: $(head -c 300 "$folder/speed.json")"
    tokens=$(value "$(setting micro_batch_size) * $(setting gradient_accumulation_steps) * \
        $(setting dp_size) * $(setting seq_length)")
    steps=$(value "$speed * $train_seconds / $tokens")
    say "$(value "$speed" %.0f) tokens/s: $steps steps of $tokens tokens in $train_seconds s"
    # A machine this slow or this busy takes longer than promised rather than show nothing.
    if [ "$steps" -lt 20 ]; then
        steps=20
        train_seconds=$(value "$steps * $tokens / $speed + 1")
        say "20 steps are the least: training gets $train_seconds s"
    fi
    warmup=$(value "($steps < 500 ? $steps / 10 : 50)")
}

train() {
    local status=0
    rm -rf "$folder/run" "$folder/checkpoints"
    # Should the machine be slower than it was just now, the run is stopped as by Ctrl-C, which
    # saves first.
    timeout --foreground --signal=INT --kill-after=30 "$((train_seconds + 20))" \
        "$program" train "$config" \
        --dataset.name="$folder/tokens" --dataset.tokenizer="$folder/tokenizer.json" \
        --dataset.validation_fraction="$held_out" \
        --training.total_train_steps="$steps" --training.warmup_steps="$warmup" \
        --checkpoint.save_dir="$folder/checkpoints" --checkpoint.save_frequency="$steps" \
        --logging.run_dir="$folder/run" >"$folder/train.log" || status=$?
    tail -n 1 "$folder/train.log"
    case $status in
    0) ;;
    124 | 130) say "stopped after $((train_seconds + 20)) s" ;;
    *) fail "training ended with status $status, see $folder/train.log" ;;
    esac
    checkpoint=$(find "$folder/checkpoints" -mindepth 1 -maxdepth 1 -name 'step-*' | sort |
        tail -n 1)
    [ -n "$checkpoint" ] || fail "training left no checkpoint in $folder/checkpoints"
}

show_samples() {
    local prompts=("In the beginning" "And the LORD said unto" "Blessed are they")
    local prompt
    if [ -n "${TEXT:-}" ]; then
        prompts=("$(head -c 200 "$text" | tr -s '[:space:]' ' ' | cut -d ' ' -f 1-3)")
    fi
    for prompt in "${prompts[@]}"; do
        printf '\n'
        "$program" generate "$checkpoint" --prompt="$prompt" --max-tokens=60 --temperature=0.8 \
            --top-p=0.95 --seed=1
        printf '\n'
    done
}

mkdir -p "$folder"
prepare_program
"$program" config show "$config" >"$folder/resolved.json"
prepare_text
prepare_data
count_steps
train
"$program" eval "$checkpoint" "$folder/tokens" --split=validation --json >"$folder/eval.json"
bits=$(number bits_per_byte <"$folder/eval.json")
[ -n "$bits" ] || fail "eval told no bits_per_byte: $(head -c 300 "$folder/eval.json")"
show_samples
printf '\n'
"$program" metrics "$folder/run" --plot --svg="$folder/loss.svg"
packed=$(xz -9e --stdout "$text" | wc -c)
say "loss curve in $folder/loss.svg, samples: $program generate $checkpoint --prompt=..."
say "xz -9e needs $(value "8 * $packed / $bytes" %.3f) bits per byte for the whole text;" \
    "the model, for the $(value "100 * $held_out" %.0f) % that it never saw, after $SECONDS s:"
say "$(value "$bits" %.3f) bits per byte"
