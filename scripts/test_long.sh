#!/usr/bin/env bash
# What takes long: every test, the whole table of meshes, tests under the address, undefined, thread
# and leak sanitizers, two ranks of MPI in valgrind, the fuzzers, an hour of random meshes, 1400
# random faults to whole runs, and 100000 to calls on files.
#
#   scripts/test_long.sh [tests] [meshes] [leaks] [address] [thread] [valgrind] [fuzzers] [fuzz_meshes]
#                        [run_faults] [file_faults] [run_fuzzers]
#
# All of them unless some are named. FUZZ_RUNS is how often each fuzzer runs (1000000); FUZZ_SECONDS
# limits each (1800); run_fuzzers, which must be named, takes those that are built in FUZZ_BUILD
# (build-fuzz); FILE_FAULTS_CASES is how many faults calls on files meet (100000). Ends with one line a
# part, and fails where a part did.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=${JOBS:-$(nproc)}

tests() { (cd build && ctest --output-on-failure); }

meshes() { scripts/equivalence_all.sh build; }

# build_in FOLDER TARGET OPTION...: configures and builds, and shows the end of the log if it fails.
build_in() {
    cmake -S . -B "$1" "${@:3}" >/dev/null
    cmake --build "$1" -j "$jobs" --target "$2" >"$1/log" || { tail -n 30 "$1/log"; return 1; }
}

# sanitize NAME SANITIZERS [OPTION...]: builds in build-NAME and runs the tests,
# without the sequence of 32768 tokens: shorter ones run the same code, and it takes three quarters
# of an hour.
sanitize() {
    build_in "build-$1" all -DCMAKE_BUILD_TYPE=Debug -DCY_SANITIZE="$2" "${@:3}"
    (cd "build-$1" && ctest -j "$jobs" -LE 'tidy|long|evidence' \
        -E '^dist\.(interleave|long_context)_slow$' --timeout 1200 --output-on-failure)
    # Twice 10^5 operations on all groups of a mesh of 16 ranks: two minutes of processor time under
    # the thread sanitizer, many more where other work has the cores too.
    ASAN_OPTIONS=detect_leaks=1 timeout 3600 "build-$1/tests/test_dist_interleave_slow"
}

leaks() {
    # shellcheck source=scripts/leaks.sh
    . scripts/leaks.sh
    build_in build-leak all "${leak_options[@]}"
    (cd build-leak && ctest -j "$jobs" -LE 'tidy|slow|long|evidence' -E "^$leak_left_out\$" --output-on-failure)
}

address() {
    export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:${ASAN_OPTIONS:-}
    sanitize address address,undefined
    (cd build-address && ASAN_OPTIONS=detect_leaks=1 ctest --output-on-failure \
        -R '^dist\.(ranks_close|group_threads|interleave)$')
}

# Without oneDNN and MPI: what libraries do that are not built for it is told as races.
thread() {
    export TSAN_OPTIONS=allocator_may_return_null=1:${TSAN_OPTIONS:-}
    sanitize thread thread -DCY_WITH_DNNL=OFF -DCY_WITH_MPI=OFF
}

# Two ranks of MPI, without oneDNN. A machine that lacks what the test needs passes it over.
valgrind() {
    local status=0
    build_in build-valgrind cyclotron -DCMAKE_BUILD_TYPE=Release -DCY_WITH_DNNL=OFF
    CYCLOTRON=build-valgrind/cyclotron SOURCE=$PWD bash tests/dist/test_valgrind_long.sh ||
        status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ]
}

fuzzers() {
    if ! command -v clang >/dev/null; then
        echo "test-long: error: the fuzzers need clang" >&2
        return 1
    fi
    build_in build-fuzz fuzzers -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang -DCY_FUZZ=ON
    run_fuzzers build-fuzz
}

# run_fuzzers FOLDER: those that were built there. None is a failure.
run_fuzzers() {
    local target name corpus built=$1 count=0
    for target in "$built"/tests/fuzz/fuzz_*; do
        if [ ! -x "$target" ] || [ ! -f "$target" ]; then
            continue
        fi
        count=$((count + 1))
        name=$(basename "$target")
        corpus=$built/corpus/$name
        mkdir -p "$corpus"
        echo "-- $name"
        # What a run frees is kept from reuse for some runs, not for thousands: each would touch new
        # memory, which took a fifth of the time.
        ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=16} "$target" \
            -runs="${FUZZ_RUNS:-1000000}" -max_total_time="${FUZZ_SECONDS:-1800}" \
            -rss_limit_mb=4096 -timeout=20 -verbosity=0 -print_final_stats=1 \
            -artifact_prefix="$built/$name-" "$corpus" "tests/fuzz/corpus/${name#fuzz_}"
    done
    [ "$count" -gt 0 ] || { echo "test-long: error: no fuzzers in $built" >&2; return 1; }
}

fuzz_meshes() { scripts/mesh_fuzz.sh --seconds="${FUZZ_MESHES_SECONDS:-3600}" --ranks=16; }

run_faults() { scripts/run_faults.sh --cases="${RUN_FAULTS_CASES:-1400}" --jobs="$jobs"; }

file_faults() { build/tests/test_unit_file_faults_slow --cases="${FILE_FAULTS_CASES:-100000}"; }

parts=("$@")
[ $# -gt 0 ] || parts=(tests meshes leaks address thread valgrind fuzzers fuzz_meshes run_faults
    file_faults)
for part in "${parts[@]}"; do
    case $part in
    tests | meshes | leaks | address | thread | valgrind | fuzzers | fuzz_meshes | run_faults | \
        file_faults | run_fuzzers) ;;
    *) echo "test-long: error: what is $part" >&2; exit 2 ;;
    esac
done

# Each part in a shell of its own, in which the first failing command ends it.
told=()
failed=0
for part in "${parts[@]}"; do
    echo "== $part"
    start=$SECONDS
    set +e
    (
        set -e
        case $part in
        tests) tests ;;
        meshes) meshes ;;
        leaks) leaks ;;
        address) address ;;
        thread) thread ;;
        valgrind) valgrind ;;
        fuzzers) fuzzers ;;
        run_fuzzers) run_fuzzers "${FUZZ_BUILD:-build-fuzz}" ;;
        fuzz_meshes) fuzz_meshes ;;
        run_faults) run_faults ;;
        file_faults) file_faults ;;
        esac
    )
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
        told+=("$part: passed, $((SECONDS - start)) s")
    else
        told+=("$part: FAILED, $((SECONDS - start)) s")
        failed=1
    fi
done
printf 'test-long: %s\n' "${told[@]}"
exit "$failed"
