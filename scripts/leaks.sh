#!/usr/bin/env bash
# The build in which memory that is left behind is seen, and what runs there. Sourced by
# scripts/test_long.sh and scripts/mutation.sh.
#
# The libraries that MPI and OpenMP bring leave memory behind at exit; ours is checked by the tests
# that open and close, and in a build without them by all of `make check`. unit.allocations brings an
# allocator of its own, and unit.checkpoint starts more than 511 threads one after the other, at which
# the leak sanitizer of gcc 12 reads its list of threads while it moves.
# shellcheck disable=SC2034 # of who sources it
leak_options=(-DCMAKE_BUILD_TYPE=Release -DCY_SANITIZE=leak -DCY_WITH_DNNL=OFF -DCY_WITH_MPI=OFF)
leak_left_out='unit\.(allocations|checkpoint)'
export LSAN_OPTIONS=allocator_may_return_null=1
