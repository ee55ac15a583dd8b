#!/usr/bin/env bash
# Strict mode on meshes of every dimension, in both dtypes: losses, norms and hashes of one rank
# after each step and weights and moments at the end, also where another mesh continues a checkpoint.
# test_equivalence_strict_long.sh has them over 20 steps, `make equivalence` has all meshes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
runs="fp32:6 bf16:2"
if [ -n "${SANITIZED:-}" ]; then runs="fp32:2 bf16:2"; fi # the same code as in the sixth step
for run in ${RUNS:-$runs}; do
    dtype=${run%:*}
    EQUIVALENCE=$folder/$dtype "$SOURCE/scripts/equivalence.sh" --part --strict --steps="${run#*:}" \
        --dtype="$dtype"
    [ "$(grep -c '| same |' "$folder/$dtype/table.md")" -ge 9 ]
done
# The comparison itself: the two dtypes do not train alike.
if cmp -s "$folder/fp32/one.numbers" "$folder/bf16/one.numbers"; then exit 1; fi
