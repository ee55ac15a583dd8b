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
    git ls-files 'src/*.c' 'tests/*.c' 'bench/**/*.c' | while read -r file; do
        grep -qF "/$file\"" "$build/compile_commands.json" && echo "$file"
    done
}

# tidy_file FILE: what clang-tidy says of it. A file that was clean is passed over as long as it, what
# it includes, its flags and the list of checks stay: their sum is the name of a file in $build/clean.
tidy_file() {
    local command sum own=/dev/null
    case $1 in tests/*) own=tests/.clang-tidy ;; esac
    command=$(awk -v file="/$1\"" -F '"command": ' \
        '/"command"/ { command = $2 } /"file"/ && index($0, file) { print command; exit }' \
        "$build/compile_commands.json" | sed -E 's/^"(.*)",?$/\1/; s/\\"/"/g; s/ -o [^ ]+ -c / -E -CC /')
    sum=$({ echo "$checks $command"; cat "$own"; eval "$command"; } | sha256sum | cut -c 1-40)
    [ ! -e "$build/clean/$sum" ] || return 0
    if clang-tidy -p "$build" --quiet --warnings-as-errors='*' "$1" >"$build/$sum.log" 2>/dev/null; then
        touch "$build/clean/$sum"
    else
        grep -E 'warning:|error:' "$build/$sum.log" || echo "$1: error: clang-tidy failed"
    fi
    rm -f "$build/$sum.log"
}

check_clang_tidy() {
    mkdir -p "$build/clean"
    checks=$({ clang-tidy --version; cat .clang-tidy; } | sha256sum)
    export build checks
    export -f tidy_file
    sources | xargs -P "$jobs" -I{} bash -c 'tidy_file {}' >"$build/tidy.log"
    [ -s "$build/tidy.log" ] || return 0
    sort -u "$build/tidy.log" | head -n 100
    return 1
}

# What it finds across files does not reach its exit status with -j, so that any word is a finding.
check_cppcheck() {
    mkdir -p "$build/cppcheck"
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
        --inline-suppr --suppressions-list=.cppcheck --cppcheck-build-dir="$build/cppcheck" \
        -j "$jobs" -I include -I src src >"$build/cppcheck.log" 2>&1 &&
        [ ! -s "$build/cppcheck.log" ] && return 0
    cat "$build/cppcheck.log"
    return 1
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
