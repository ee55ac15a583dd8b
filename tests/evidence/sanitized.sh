# What the samples under sanitizers share. Sourced from the source folder; the caller sets `build`.
# shellcheck disable=SC2034,SC2154

jobs=${JOBS:-$(nproc)}

# clang builds each sample where it is installed: the tables of strict mode take it 2 seconds a file, and
# gcc 8 to 14. `make test-long` has gcc's sanitizers.
compiler=$(command -v clang || command -v "${CC:-cc}")

# build_sanitized SANITIZERS TARGET... [-DOPTION...]: configures and builds the program and these targets.
build_sanitized() {
    local sanitizers=$1 targets=(cyclotron) options=() word
    shift
    for word in "$@"; do
        case $word in
        -D*) options+=("$word") ;;
        *) targets+=("$word") ;;
        esac
    done
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Sample -DCMAKE_C_COMPILER="$compiler" \
        -DCMAKE_C_FLAGS=-O1 -DCY_DEBUG_ASSERTS=ON -DCY_SANITIZE="$sanitizers" \
        ${options[@]+"${options[@]}"} >/dev/null
    cmake --build "$build" -j "$jobs" --target "${targets[@]}" >"$build/log" 2>&1 ||
        { tail -n 30 "$build/log"; return 1; }
}

# build_address: the one build of evidence.address and evidence.fuzzers. With clang the readers become
# fuzzers in it; with gcc, programs that run them over the corpus and damaged copies of it.
build_address() {
    build="build-ci-address"
    if [ "$(basename "$compiler")" = clang ]; then
        build_sanitized address,undefined tests_sample fuzzers -DCY_FUZZ=ON
    else
        build_sanitized address,undefined tests_sample tests_fuzz
    fi
}

# run_sanitized CTEST-OPTION...: the tests that were built.
run_sanitized() {
    (cd "$build" && ctest -j "$jobs" --output-on-failure --no-tests=error "$@")
}

# train_sanitized "TP CP PP DP OPTION...": three steps of a small model on this mesh.
train_sanitized() {
    local program=$build/cyclotron folder dtype=fp32 strict=false
    folder=$(mktemp -d)
    # shellcheck source=../../scripts/mesh_runs.sh
    . scripts/mesh_runs.sh
    make_data
    make_config 3 '"hidden_size": 64, "intermediate_size": 128, "vocab_size": 320' \
        '"seq_length": 32, "global_batch_size": 8, "learning_rate": 3e-4'
    if ! train sample "$1" || [ "$(wc -l <"$folder/sample.numbers")" -ne 3 ]; then
        cat "$folder/sample.log"
        rm -rf "$folder"
        return 1
    fi
    rm -rf "$folder"
}
