# Whether what `cyclotron bench comm` prints agrees with itself. Sourced after lib.sh.
# shellcheck disable=SC2154 # of lib.sh

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
