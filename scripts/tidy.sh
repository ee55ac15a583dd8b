#!/usr/bin/env bash
# Static analysis of all that is ours; ends with 1 when anything was found. Tools that are not here
# are named and count as a failure: TIDY="gcc clang-tidy cppcheck shellcheck" chooses.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
build="build-tidy"
failed=()

run() {
    echo "== $1"
    if ! command -v "$1" >/dev/null; then
        echo "tidy: error: no $1 here"
        failed+=("$1")
        return
    fi
    "check_${1//-/_}" || failed+=("$1")
}

check_gcc() {
    cmake -S . -B "$build-gcc" -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Release -DCY_TESTS=OFF \
        -DCMAKE_C_FLAGS=-fanalyzer >/dev/null || return 1
    cmake --build "$build-gcc" -j "$jobs" -- -k >"$build-gcc/log" 2>&1 && return 0
    grep -E -A 12 'warning:|error:' "$build-gcc/log" | head -n 120
    return 1
}

# The database of commands, of clang, so that its analyser knows the flags.
sources() {
    cmake -S . -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Release >/dev/null || return 1
    git ls-files 'src/*.c' 'tests/*.c' | while read -r file; do
        grep -qF "/$file\"" "$build/compile_commands.json" && echo "$file"
    done
}

check_clang_tidy() {
    sources | xargs -P "$jobs" -n 4 clang-tidy -p "$build" --quiet 2>/dev/null >"$build/tidy.log"
    local found
    found=$(grep -cE 'warning:|error:' "$build/tidy.log")
    [ "$found" -eq 0 ] && return 0
    grep -E 'warning:|error:' "$build/tidy.log" | sort -u | head -n 100
    return 1
}

check_cppcheck() {
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
        --inline-suppr --suppressions-list=.cppcheck -j "$jobs" -I include -I src src
}

check_shellcheck() {
    git ls-files '*.sh' | xargs shellcheck -s bash -x -P SCRIPTDIR .ci/run
}

for tool in ${TIDY:-gcc clang-tidy cppcheck shellcheck}; do
    run "$tool"
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "tidy: ${failed[*]} found something"
    exit 1
fi
echo "tidy: clean"
