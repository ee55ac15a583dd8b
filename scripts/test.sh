#!/usr/bin/env bash
# test.sh BUILD CTEST-OPTION...: runs CTest with JOBS tests at a time, and fails where a test failed, or
# where one was skipped that tests/skips.txt does not name: what nobody looks at must not pass for tested.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
shift
mkdir -p "$build/Testing"
log=$build/Testing/output.txt
status=0
(cd "$build" && ctest --output-on-failure -j "${JOBS:-$(nproc)}" "$@") 2>&1 | tee "$log" || status=$?
unlisted=$(sed -nE 's/^\t *[0-9]+ - ([a-z_.0-9]+) \(Skipped\)$/\1/p' "$log" |
    grep -vxF -f <(sed -nE 's/^([a-z][a-z_.0-9]*) .*/\1/p' tests/skips.txt) || true)
if [ -n "$unlisted" ]; then
    echo "test: error: skipped, and tests/skips.txt has no reason: $(tr '\n' ' ' <<<"$unlisted")" >&2
    status=1
fi
grep -E '^[0-9]+% tests passed' "$log" || true
exit "$status"
