#!/usr/bin/env bash
# cyclotron bench comm: the rates, the link and the shares of memory's rate that it prints follow from
# the times and sizes beside them.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# shellcheck source=tests/cli/bench_comm.sh
. "$(dirname "$0")/bench_comm.sh"

measure send 2 1 1 1
measure reduce_scatter 2 0.5 2 1

# Of messages below a mebibyte nothing is said of memory.
expect 0 bench comm --backend=threads --op=send --bytes=512
is err ""
says out 'link over threads: alpha'
check "no share of memory" test "$(grep -c 'against memory' "$folder/out")" = 0
finish
