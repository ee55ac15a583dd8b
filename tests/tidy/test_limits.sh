#!/usr/bin/env bash
# Sizes that a reader can take in: functions of at most 70 lines between their braces, files of at
# most 1,000, the parallel cores 600, lines of 100 columns. A function may go on for a reason, given
# in a comment above it that holds the words "Long because". Tables that clang-format leaves alone
# may be wide.
# shellcheck disable=SC2016 # awk's, not the shell's
set -euo pipefail
cd "$SOURCE"

find src include tests bench examples \( -name '*.[ch]' -o -name '*.cu' \) 2>/dev/null | sort |
    xargs awk '
    function report(text) {
        printf "%s:%d: %s\n", FILENAME, FNR, text
        faults++
    }
    FNR == 1 { open = 0; excused = 0; table = 0 }
    /clang-format off/ { table = 1 }
    /clang-format on/ { table = 0 }
    length($0) > 100 && !table {
        # bytes are counted; characters are what is meant
        line = $0
        gsub(/[\200-\277]/, "", line)
        if (length(line) > 100) report(length(line) " columns, more than 100")
    }
    /\t/ { report("a tab") }
    /[ ]$/ { report("a space at the end of the line") }
    /Long because/ { excused = 1 }
    /^{$/ { open = FNR }
    /^}/ {
        if (open && FNR - open - 1 > 70 && !excused) report("a function of " FNR - open - 1 " lines, more than 70")
        open = 0
        excused = 0
    }
    FNR == 1001 { report("more than 1,000 lines") }
    FNR == 601 && FILENAME ~ /^src\/parallel\// { report("more than 600 lines in a parallel core") }
    END {
        if (NR < 1000) { print "nothing was looked at"; exit 1 }
        exit faults > 0
    }'
