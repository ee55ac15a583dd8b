#!/usr/bin/env bash
# Some planted faults, one of each kind, are caught; test_faults_long.sh plants them all.
set -euo pipefail
build=$(dirname "$CYCLOTRON")
if grep -q '^CY_SANITIZE:STRING=.' "$build/CMakeCache.txt"; then
    echo "skipped: a sanitizer notices other things, slowly"
    exit 77
fi
exec "$SOURCE/scripts/faults.sh" --build="$build" gradient-not-over-context \
    norm-gradient-not-over-tensor kv-heads-counted-twice not-divided-by-microbatches \
    bucket-not-waited-for zigzag-off-by-one tied-embedding-not-over-pipeline \
    shard-boundary-off-by-one resume-reads-from-the-start
