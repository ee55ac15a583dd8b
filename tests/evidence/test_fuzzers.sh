#!/usr/bin/env bash
# Some seconds of each fuzzer, from its corpus, in the build of evidence.address. Needs clang; without it
# the readers are run over the corpus and damaged copies of it, by evidence.address.
set -euo pipefail
cd "$SOURCE"
if ! command -v clang >/dev/null; then
    echo "clang is not installed"
    exit 77
fi
# shellcheck source=sanitized.sh
. tests/evidence/sanitized.sh

build_address
FUZZ_SECONDS=${FUZZ_SECONDS:-5} FUZZ_BUILD=$build FUZZ_RUNS=-1 scripts/test_long.sh run_fuzzers
