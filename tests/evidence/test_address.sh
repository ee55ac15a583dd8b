#!/usr/bin/env bash
# The address and undefined-behaviour sanitizers over the tests of units and operators, a training on 8
# ranks, and every reader of files on the fuzzers' corpus. Builds in build-ci-address.
set -euo pipefail
cd "$SOURCE"
# shellcheck source=sanitized.sh
. tests/evidence/sanitized.sh

build="build-ci-address"
build_sanitized address,undefined tests_unit tests_kernel tests_fuzz
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
# The largest tests of operators are left to `make test-long`.
run_sanitized -L '^(unit|kernel|fuzz)$' -E '^kernel\.(matmul_tuned|attention_tuned)|\.(avx2|avx512|avx512_bf16|amx)$|_slow$'
train_sanitized "2 1 2 2 zero_stage=1 sequence_parallel=true pp_engine=interleaved pp_chunks=2"
