#!/usr/bin/env bash
# Planted faults: each patch of tests/faults breaks a line or three; a test must notice.
#
#   scripts/faults.sh [--build=BUILD] [--table=FILE] [NAME...]
#
# A patch begins with what the fault is and a line `Caught-by: TEST...` with names as CTest has them.
# scripts/planted.sh compiles and links: only one object and one link a fault. Every test is run
# unbroken first: it has to pass there and to fail here. --table writes the rows of docs/faults.md.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build
table=
names=()
for argument in "$@"; do
    case $argument in
    --build=*) build=${argument#*=} ;;
    --table=*) table=${argument#*=} ;;
    -*) echo "faults: error: what is $argument" >&2; exit 2 ;;
    *) names+=("$argument") ;;
    esac
done
build=$(cd "$build" && pwd)
if [ ${#names[@]} -eq 0 ]; then
    for patch in tests/faults/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=scripts/planted.sh
. scripts/planted.sh

# What a log says of the failure, in one line.
reason() {
    grep -m 1 -oE '(tp|cp|dp|pp|engine|fp64 dp) [0-9].*(loss|losses|gradients).*|FAIL: .*|Assert.*' \
        "$1" | cut -c 1-110 || tail -n 1 "$1" | cut -c 1-110
}

declare -A passes
missed=0
{
    echo '| planted fault | what is broken | tests that fail |'
    echo '|---|---|---|'
} >"$work/table"
for name in "${names[@]}"; do
    patch=tests/faults/$name.patch
    [ -e "$patch" ] || { echo "faults: error: no fault $name in tests/faults" >&2; exit 2; }
    file=$(sed -n 's|^+++ b/||p' "$patch")
    what=$(head -n 1 "$patch")
    tests=$(sed -n 's/^Caught-by: //p' "$patch")
    rm -rf "$work/tree" && mkdir -p "$work/tree/$(dirname "$file")"
    cp "$file" "$work/tree/$file"
    patch --silent --strip=1 --fuzz=0 --directory="$work/tree" <"$patch"
    compile "$work/tree/$file" "$work/fault.o" "$file"
    rm -f "$work/cyclotron.is"
    caught=
    for test in $tests; do
        if [ -z "${passes[$test]:-}" ]; then
            if ! run_test "$test" "" "$work/log"; then
                tail -n 20 "$work/log" >&2
                echo "faults: error: $test fails without a fault" >&2
                exit 1
            fi
            passes[$test]=yes
        fi
        status=0
        run_test "$test" "$work/fault.o" "$work/log" || status=$?
        if [ "$status" -eq 120 ]; then
            echo "faults: error: $test does not link" >&2
            exit 1
        elif [ "$status" -eq 0 ]; then
            missed=$((missed + 1))
            printf '%-44s %-24s MISSED\n' "$name" "$test"
        else
            printf '%-44s %-24s caught: %s\n' "$name" "$test" "$(reason "$work/log")"
            caught="$caught, $test"
        fi
    done
    printf '| %s | %s | %s |\n' "$name" "$what" "${caught#, }" >>"$work/table"
done
if [ -n "$table" ]; then cp "$work/table" "$table"; fi
echo "faults: ${#names[@]} planted, $missed missed"
[ "$missed" -eq 0 ]
