#!/usr/bin/env bash
# cyclotron bench comm: one row an operation, algorithm and size, with the fixed fields; the rates, the
# link and the shares of memory's rate that it prints follow from the times and sizes beside them.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# consistent OP RANKS BUS READ WRITTEN: the last run's tables of an operation, of whose n bytes BUS n
# go over a link, READ n are read and WRITTEN n written.
consistent() {
    # shellcheck disable=SC2016 # awk's
    if ! awk -v op="$1" -v bus="$3" -v read="$4" -v written="$5" '
        # Within what the digits of a printed number leave, and one per cent.
        function near(what, is, wanted, digit) {
            if (is - wanted > digit + 0.01 * wanted || wanted - is > digit + 0.01 * wanted) {
                print op ": " what " is " is ", wanted " wanted; faults++
            }
        }
        $1 == op && NF == 6 {
            rows++
            if ($4 != "-" || $5 != "-") { print "another backend: " $0; faults++ }
            rate = bus * $2 / $3 / 1000 # of a time that is itself known to half a digit
            near("bus rate of " $2 " bytes", $6, rate, 0.006 + rate * 0.005 / $3)
            if (rows == 1) smallest = $3
            took = $3; bytes = $2
        }
        /^link over threads: / {
            links++
            near("alpha", $5, smallest, 0)
            if (took < 2 * smallest) { # on a machine that was busy
                if (!/needs larger messages than 2000000 bytes$/) { print $0; faults++ }
            } else {
                near("beta", $8, (bytes - 8) / (took - smallest) / 1000, 0.006)
            }
        }
        /bytes over threads against memory/ { copy = $10 }
        $1 == op && NF == 5 {
            shares++
            if ($2 != read "n" || $3 != written "n") { print "touched: " $0; faults++ }
            near("rate of memory", $4, (read + written) * bytes / took / 1000, 0.06)
            near("share of memory in per cent", $5 + 0, 100 * $4 / copy, 0.51 + 6 / copy)
        }
        END {
            if (rows != 7 || bytes != 2000000 || shares != 1 || links != (op == "send")) {
                print op ": " rows " sizes up to " bytes ", " shares " shares, " links " links"
                faults++
            }
            exit faults > 0
        }' "$folder/out"; then
        failures=$((failures + 1))
        cat "$folder/out"
    fi
}

measure() { # OP RANKS BUS READ WRITTEN
    expect 0 bench comm --backend=threads --op="$1" --ranks="$2" --bytes=2M
    is err ""
    consistent "$@"
}

expect 0 bench comm --backend=threads --op=all_reduce --bytes=512 --json
is err ""
# shellcheck disable=SC2016 # awk's
if ! awk -F'[:,}]' -v ranks=2 '
    /^\[|^\]/ { next }
    !/^\{"op":"all_reduce","algorithm":"[a-z]+","backend":"threads","ranks":2,"bytes":[0-9]+,"us":[0-9.]+(e[-+][0-9]+)?,"bus_gb_s":[0-9.]+(e-[0-9]+)?\},?$/ {
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
        if (!("\"auto\"" in algorithms) || !("\"native\"" in algorithms) || !("\"ring\"" in algorithms) || count < 4 || many != 3 ||
            rows != count * many) {
            print rows " rows of " count " algorithms and " many " sizes"; faults++
        }
        exit faults > 0
    }' "$folder/out"; then
    failures=$((failures + 1))
fi

measure send 2 1 1 1
measure reduce_scatter 2 0.5 2 1
measure all_gather 2 0.5 1 2
measure all_to_all 2 0.5 2 2
measure broadcast 3 1 1 2
measure neighbour 2 0.5 1 1

expect 0 bench comm --backend=threads --op=barrier
says out 'barrier'
expect 2 bench comm --ranks=1
says err '--ranks'
expect 2 bench comm --op=gossip
says err 'gossip'

# Of messages below a mebibyte nothing is said of memory.
expect 0 bench comm --backend=threads --op=send --bytes=512
is err ""
says out 'link over threads: alpha'
check "no share of memory" test "$(grep -c 'against memory' "$folder/out")" = 0

# ---- between processes

if ! "$cyclotron" --version | grep -q '^backends:.* mpi'; then
    expect 1 bench comm --backend=mpi --op=barrier
    says err 'backend mpi is not in this build'
    finish
fi
if command -v mpirun >/dev/null; then
    expect 0 bench comm --backend=mpi --op=barrier --json
    check "the barrier of both" test "$(grep -cE \
        '^\{"op":"barrier","algorithm":"(native|MPI)","backend":"mpi","ranks":2,"bytes":0,' "$folder/out")" = 2
fi

# rows TEXT: an mpirun that keeps what it is called with, and prints this instead.
rows() {
    mkdir -p "$folder/bin"
    printf '%s' "$1" >"$folder/rows"
    printf '#!/bin/sh\necho "$*" >%s/called\n/bin/cat %s/rows\n' "$folder" "$folder" >"$folder/bin/mpirun"
    chmod +x "$folder/bin/mpirun"
}
# row OP ALGORITHM BYTES US
row() {
    printf '{"op":"%s","algorithm":"%s","backend":"mpi","ranks":3,"bytes":%s,"us":%s,"bus_gb_s":1.5}' "$@"
}
rows "[$(row send native 8 2), $(row send native 4096 10.176), $(row send MPI 8 1.5),
    $(row all_reduce native 8 3), $(row all_reduce ring 8 4), $(row all_reduce tree 8 2),
    $(row all_reduce native 4096 6), $(row all_reduce server 4096 6), $(row all_reduce MPI 4096 7),
    $(row all_reduce auto 8 2.5), $(row all_reduce auto 4096 6)]"
PATH=$folder/bin:$PATH expect 0 bench comm --backend=mpi --ranks=3 --bytes=4099
check "how mpirun is called" grep -qE \
    '^--oversubscribe -n 3 /.*/cyclotron bench comm --backend=mpi --json --bytes=4096 --op=all$' "$folder/called"
is out '
microseconds of each backend'"'"'s own, and of the MPI library between processes
      operation      bytes      threads          mpi  MPI library     bus GB/s
           send          8            -         2.00         1.50         1.50
           send       4096            -        10.18            -         1.50
     all_reduce          8            -         3.00            -         1.50
     all_reduce       4096            -         6.00         7.00         1.50

all_reduce over mpi, microseconds (* the fastest)
     bytes          auto        native          ring          tree      doubling  hierarchical        server
         8         2.50          3.00          4.00          2.00*             -             -             -
      4096         6.00          6.00*             -             -             -             -         6.00 
auto is within 25 % of the fastest, farthest at 8 bytes (tree)

link over mpi: alpha 2.00 us, beta 0.50 GB/s'
rows "[$(row all_reduce native 8 3), $(row all_reduce ring 8 3.01), $(row all_reduce auto 8 3)]"
PATH=$folder/bin:$PATH expect 0 bench comm --backend=mpi --bytes=8
says out 'auto is as fast as the fastest at every size'
rows "[$(row all_reduce native 8 3), $(row all_reduce ring 8 4), $(row neighbour native 8 3)]"
PATH=$folder/bin:$PATH expect 0 bench comm --backend=mpi --bytes=8
says out 'ring over mpi, 8 bytes: 1.50 GB/s, 100 % of the 1.50 GB/s that neighbours send'
check "nothing is said of an auto that was not measured" test "$(grep -c 'of the fastest' "$folder/out")" = 0
check "no link of rows without one" test "$(grep -c 'link over' "$folder/out")" = 0

# 64 bytes cost nearly what 8 cost: no rate is made of the difference below twice as long.
rows "[$(row send native 8 2), $(row send native 64 3.999)]"
PATH=$folder/bin:$PATH expect 0 bench comm --backend=mpi --op=send --bytes=64
says out 'link over mpi: alpha 2.00 us, beta needs larger messages than 64 bytes'
rows "[$(row send native 8 2), $(row send native 64 4)]"
PATH=$folder/bin:$PATH expect 0 bench comm --backend=mpi --op=send --bytes=64
says out 'link over mpi: alpha 2.00 us, beta 0.03 GB/s'

# Threads and processes side by side: one line an operation and size.
rows "[$(row barrier native 0 12.5), $(row barrier MPI 0 3.25)]"
PATH=$folder/bin:$PATH expect 0 bench comm --op=barrier
check "one line of both" grep -qE '^ +barrier +0 +[0-9.]+ +12\.50 +3\.25 ' "$folder/out"
check "one line" test "$(grep -c '^ *barrier' "$folder/out")" = 1

for text in '[{"op":"gossip","algorithm":"native"}]' '[{"op":"send"}]' '[{"algorithm":"native"}]'; do
    rows "$text"
    PATH=$folder/bin:$PATH expect 1 bench comm --backend=mpi --op=barrier
    says err 'the ranks under mpirun: row 0 is none'
done
rows '[{"op":'
PATH=$folder/bin:$PATH expect 1 bench comm --backend=mpi --op=barrier
says err 'the ranks under mpirun: '
printf '#!/bin/sh\nexit 3\n' >"$folder/bin/mpirun"
PATH=$folder/bin:$PATH expect 1 bench comm --backend=mpi --op=barrier
says err 'mpirun ended with status 3'
printf '#!/bin/sh\nkill -9 $$\n' >"$folder/bin/mpirun"
PATH=$folder/bin:$PATH expect 1 bench comm --backend=mpi --op=barrier
says err 'signal 9 ended mpirun'
mkdir "$folder/none"
PATH=$folder/none expect 1 bench comm --backend=mpi --op=barrier
says err 'start mpirun: No such file or directory'
PATH=$folder/none expect 0 bench comm --op=barrier
says err 'mpirun is not installed: threads only'
says out 'barrier'
finish
