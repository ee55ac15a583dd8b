#!/usr/bin/env bash
# The thread sanitizer over the tests of communication and a training on 8 ranks. Builds in
# build-ci-thread, without oneDNN and MPI: what libraries do that are not built for it is told as races.
set -euo pipefail
cd "$SOURCE"
# shellcheck source=sanitized.sh
. tests/evidence/sanitized.sh

build="build-ci-thread"
tests="group_threads group_counters algorithms ranks ranks_close reopen interleave single_process reducer_units
    pipeline_executor"
targets=()
for test in $tests; do targets+=("test_dist_$test"); done
build_sanitized thread "${targets[@]}" -DCY_WITH_DNNL=OFF -DCY_WITH_MPI=OFF
export TSAN_OPTIONS=allocator_may_return_null=1
run_sanitized -R "^dist\\.($(tr -s '[:space:]' '|' <<<"$tests" | sed 's/|$//'))\$"
train_sanitized "2 1 2 2 zero_stage=2 pp_engine=zero_bubble"
