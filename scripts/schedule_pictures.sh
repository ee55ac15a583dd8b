#!/usr/bin/env bash
# Draws the pictures of docs/pipeline.md: one of every engine, by the program itself.
#   scripts/schedule_pictures.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
program=${CYCLOTRON:-$here/build/cyclotron}
folder=${1:-$here/docs/pictures}
mkdir -p "$folder"

draw() { # NAME ARGUMENTS...
    local name=$1
    shift
    "$program" schedule --stages=4 --microbatches=8 "--svg=$folder/schedule_$name.svg" "$@" >/dev/null
}

draw afab --engine=afab
draw 1f1b --engine=1f1b
draw interleaved --engine=interleaved --chunks=2
draw zb_h1 --engine=zero_bubble
draw zb_v --engine=zero_bubble --chunks=2
draw csv --engine=csv "--csv=$here/docs/pictures/schedule_csv.csv"
