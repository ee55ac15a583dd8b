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
# A model that has learnt nothing gives each of 8192 tokens the same probability: 13 bits for the 4 bytes of
# a token, 3.27 bits per byte. 20 steps, the least that the demo takes, are well below that.
awk "BEGIN { exit !($bits > 0.5 && $bits < 3) }"
