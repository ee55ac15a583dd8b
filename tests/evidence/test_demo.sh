#!/usr/bin/env bash
# The demo as `make demo` runs it, with 20 seconds of training: the text from its Debian package, a
# tokenizer, a model, its samples and its bits per byte.
set -euo pipefail
if ! command -v bible >/dev/null; then
    echo "the text comes from the Debian package bible-kjv, which is not here: make setup installs it"
    exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
SETUP=no TEXT='' CYCLOTRON=$(realpath "$CYCLOTRON") DEMO=$folder/demo TRAIN_SECONDS=20 \
    "$SOURCE/scripts/demo.sh" | tee "$folder/out"
bits=$(sed -nE 's/^demo: ([0-9.]+) bits per byte$/\1/p' "$folder/out")
[ -n "$bits" ]
[ -s "$folder/demo/loss.svg" ]
# Letters at random cost some 4.2 bits in this text; what learns for seconds is well below that.
awk "BEGIN { exit !($bits > 0.5 && $bits < 4) }"
