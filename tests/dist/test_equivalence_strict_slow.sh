#!/usr/bin/env bash
# Strict mode on meshes of every dimension, in both dtypes: losses, norms and hashes of one rank
# after each of 20 steps (8 in bf16), also where another mesh continues a checkpoint.
# `make equivalence` has all meshes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for run in "fp32 20" "bf16 8"; do
    dtype=${run% *}
    EQUIVALENCE=$folder/$dtype "$SOURCE/scripts/equivalence.sh" --part --strict --steps="${run#* }" \
        --dtype="$dtype"
    [ "$(grep -c '| same |' "$folder/$dtype/table.md")" -ge 9 ]
done
# The comparison itself: the two dtypes do not train alike.
if cmp -s "$folder/fp32/one.numbers" "$folder/bf16/one.numbers"; then exit 1; fi
