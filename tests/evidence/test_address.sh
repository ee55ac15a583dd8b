#!/usr/bin/env bash
# The address and undefined-behaviour sanitizers over the tests of units and operators and a training on 8
# ranks. The readers of files: evidence.fuzzers in the same build, or, where clang is not installed, here
# over the fuzzers' corpus. Builds in build-ci-address.
set -euo pipefail
cd "$SOURCE"
# shellcheck source=sanitized.sh
. tests/evidence/sanitized.sh

build_address
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
# The largest tests of operators are left to `make test-long`, and so tests/CMakeLists.txt leaves them out of
# the target tests_sample.
run_sanitized -L '^(unit|kernel|fuzz)$' -E '^kernel\.(matmul_tuned|attention_tuned)|\.(avx2|avx512|avx512_bf16|amx)$|_(slow|long)$'
train_sanitized "2 1 2 2 zero_stage=1 sequence_parallel=true pp_engine=interleaved pp_chunks=2"
