#!/usr/bin/env bash
# The whole table of meshes, fast and strict, in fp32 and bf16: some 1,500 trainings, an hour on two
# idle cores. A run that was stopped goes on where it was, unless the program is another one since.
#
#   scripts/equivalence_all.sh [BUILD]
#
# The rows go to BUILD/equivalence (fast), BUILD/equivalence/strict-fp32 and strict-bf16. Fails if a
# mesh is beyond its bound. ROW_SECONDS limits each training (900).
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
folder=$build/equivalence
export CYCLOTRON=$build/cyclotron

stamp=$(cksum <"$CYCLOTRON")
if [ "$(cat "$folder/program" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    echo "$stamp" >"$folder/program"
fi
failed=0
EQUIVALENCE=$folder scripts/equivalence.sh --resume || failed=1
for dtype in fp32 bf16; do
    EQUIVALENCE=$folder/strict-$dtype scripts/equivalence.sh --strict --dtype=$dtype --resume ||
        failed=1
done
[ "$failed" -eq 0 ] || { echo "equivalence: error: meshes beyond their bounds" >&2; exit 1; }
