#!/usr/bin/env bash
# What takes long: a step's speed against the last commit's, the whole table of meshes, every test
# under the address, undefined and thread sanitizers, two ranks of MPI in valgrind, and the fuzzers.
#
# FUZZ_RUNS is how often each fuzzer runs (100000); FUZZ_SECONDS limits each (300).
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

echo "== speed"
scripts/regression.sh build

echo "== the table of meshes"
scripts/equivalence_all.sh build

# sanitize NAME SANITIZERS: builds in build-NAME and runs the tests that need no speed.
sanitize() {
    echo "== tests under $2"
    cmake -S . -B "build-$1" -DCMAKE_BUILD_TYPE=Debug -DCY_SANITIZE="$2" >/dev/null
    cmake --build "build-$1" -j "$jobs" >"build-$1/log" || { tail -n 30 "build-$1/log"; exit 1; }
    (cd "build-$1" && ctest -j "$jobs" -LE 'tidy|long' -E '^dist\.interleave_slow$' --timeout 1200 \
        --output-on-failure)
    # Twice 10^5 operations on all groups of a mesh of 16 ranks: two minutes of processor time under
    # the thread sanitizer, many more where other work has the cores too.
    ASAN_OPTIONS=detect_leaks=1 timeout 3600 "build-$1/tests/test_dist_interleave_slow"
}

# The libraries that MPI and OpenMP bring leave memory behind at exit; ours is checked by the tests
# that open and close.
export ASAN_OPTIONS=detect_leaks=0:${ASAN_OPTIONS:-}
sanitize address address,undefined
echo "== leaks of groups and ranks"
(cd build-address && ASAN_OPTIONS=detect_leaks=1 ctest --output-on-failure \
    -R '^dist\.(ranks_close|group_threads|interleave)$')
sanitize thread thread

echo "== two ranks of MPI in valgrind, without oneDNN"
cmake -S . -B build-valgrind -DCMAKE_BUILD_TYPE=Release -DCY_WITH_DNNL=OFF >/dev/null
cmake --build build-valgrind -j "$jobs" --target cyclotron >build-valgrind/log ||
    { tail -n 30 build-valgrind/log; exit 1; }
status=0
CYCLOTRON=build-valgrind/cyclotron SOURCE=$PWD bash tests/dist/test_valgrind_long.sh || status=$?
[ "$status" -eq 0 ] || [ "$status" -eq 77 ] || exit 1

echo "== fuzzers"
if ! command -v clang >/dev/null; then
    echo "test-long: error: the fuzzers need clang" >&2
    exit 1
fi
cmake -S . -B build-fuzz -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang -DCY_FUZZ=ON >/dev/null
cmake --build build-fuzz -j "$jobs" --target fuzzers >build-fuzz/log || { tail -n 30 build-fuzz/log; exit 1; }
for target in build-fuzz/tests/fuzz/fuzz_*; do
    if [ ! -x "$target" ] || [ ! -f "$target" ]; then
        continue
    fi
    name=$(basename "$target")
    corpus=build-fuzz/corpus/$name
    mkdir -p "$corpus"
    echo "-- $name"
    "$target" -runs="${FUZZ_RUNS:-100000}" -max_total_time="${FUZZ_SECONDS:-300}" -rss_limit_mb=4096 \
        -timeout=20 -verbosity=0 -print_final_stats=1 -artifact_prefix="build-fuzz/$name-" \
        "$corpus" "tests/fuzz/corpus/${name#fuzz_}"
done
