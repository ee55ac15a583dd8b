#!/usr/bin/env bash
# Every patch of tests/faults still applies, changes one file of src/, names tests that are there,
# and stands in docs/faults.md with them.
set -euo pipefail
cd "$SOURCE"
faults=0
report() {
    printf '%s\n' "$1"
    faults=$((faults + 1))
}

count=0
for patch in tests/faults/*.patch; do
    name=$(basename "$patch" .patch)
    count=$((count + 1))
    patch --dry-run --silent --strip=1 --fuzz=0 <"$patch" || report "$patch no longer applies"
    [ "$(grep -c '^+++ b/src/' "$patch")" = 1 ] || report "$patch does not change one file of src/"
    tests=$(sed -n 's/^Caught-by: //p' "$patch")
    [ -n "$tests" ] || report "$patch names no test"
    for test in $tests; do
        file=tests/${test%%.*}/test_${test#*.}
        [ -e "$file.c" ] || [ -e "$file.sh" ] || report "$patch names $test, which is not there"
    done
    row="| $name | $(head -n 1 "$patch") | ${tests// /, } |"
    grep -qxF -- "$row" docs/faults.md || report "docs/faults.md has no row: $row"
done
[ "$count" -ge 12 ] || report "only $count faults are planted"
exit $((faults > 0))
