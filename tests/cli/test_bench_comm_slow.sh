#!/usr/bin/env bash
# cyclotron bench comm: one row an operation, algorithm and size, with the fixed fields; the bus rate
# is what bytes and time say.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/bench_comm.sh
. "$(dirname "$0")/bench_comm.sh"

expect 0 bench comm --backend=threads --op=all_reduce --bytes=512 --json
is err ""
# shellcheck disable=SC2016 # awk's
if ! awk -F'[:,}]' -v ranks=2 '
    /^\[|^\]/ { next }
    !/^\{"op":"all_reduce","algorithm":"[a-z]+","backend":"threads","ranks":2,"bytes":[0-9]+,"us":[0-9.]+,"bus_gb_s":[0-9.]+\},?$/ {
        print "another row: " $0; faults++; next
    }
    {
        rows++; algorithms[$4]++; sizes[$10]++
        us = $12; rate = $14
        want = 2 * (ranks - 1) / ranks * $10 / us / 1000
        if (!(us > 0) || rate - want > 0.01 * want + 0.0001 || want - rate > 0.01 * want + 0.0001) {
            print $0 ": the bus rate should be " want; faults++
        }
    }
    END {
        for (name in algorithms) count++
        for (size in sizes) many++
        if (!("\"native\"" in algorithms) || !("\"ring\"" in algorithms) || count < 4 || many != 3 ||
            rows != count * many) {
            print rows " rows of " count " algorithms and " many " sizes"; faults++
        }
        exit faults > 0
    }' "$folder/out"; then
    failures=$((failures + 1))
fi

# 64 bytes cost what 8 cost: no rate is made of the difference.
expect 0 bench comm --backend=threads --op=send --bytes=64
check "no rate of small messages" grep -qE \
    'alpha [0-9.]+ us, beta needs larger messages than 64 bytes$' "$folder/out"
expect 0 bench comm --backend=threads --op=send --bytes=1M
check "a rate of large ones" grep -qE 'alpha [0-9.]+ us, beta [0-9.]+ GB/s$' "$folder/out"

measure all_gather 2 0.5 1 2
measure all_to_all 2 0.5 2 2
measure broadcast 3 1 1 2

expect 0 bench comm --backend=threads --op=barrier
says out 'barrier'
expect 2 bench comm --ranks=1
says err '--ranks'
expect 2 bench comm --op=gossip
says err 'gossip'
finish
