#!/usr/bin/env bash
# Meshes of 16 and 8 ranks train as one rank does, over 50 optimizer steps of several microbatches: losses,
# gradient norms, and each tensor of the weights in the 2-norm. 2 x 2 x 2 x 2 in fp64 and fp32; tensor, data
# and pipeline parallelism with every ZeRO stage and several engines.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

EQUIVALENCE=$folder/fp64 "$SOURCE/scripts/equivalence.sh" --part --dtype=fp64 --steps=50 \
    --mesh="2 2 2 2 sequence_parallel=true zero_stage=1"
EQUIVALENCE=$folder/fp32 "$SOURCE/scripts/equivalence.sh" --dtype=fp32 --steps=50 \
    --mesh="2 2 2 2" \
    --mesh="2 2 2 2 sequence_parallel=true zero_stage=3 pp_engine=interleaved pp_chunks=2" \
    --mesh="2 1 2 2 pp_engine=afab" \
    --mesh="2 1 2 2 zero_stage=1" \
    --mesh="2 1 2 2 zero_stage=2 sequence_parallel=true" \
    --mesh="2 1 2 2 zero_stage=3" \
    --mesh="2 1 2 2 zero_stage=2 pp_engine=zero_bubble" \
    --mesh="1 2 2 2 zero_stage=3 pp_engine=interleaved pp_chunks=2" \
    --mesh="1 1 4 2 zero_stage=1 pp_engine=zero_bubble pp_chunks=2" \
    --mesh="1 1 8 1 pp_engine=zero_bubble"
