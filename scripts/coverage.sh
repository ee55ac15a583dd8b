#!/usr/bin/env bash
# Which lines and branches of src/ the tests reach: builds in build-coverage with gcc, runs the
# tests of `make check` but those of the text, prints a row a file and the sums. Reports without a
# limit; fails where a test did. EXCEPT=long runs the slow tests too: they reach few lines more, and
# the counters' atomic additions make them take 20 times as long.
set -euo pipefail
cd "$(dirname "$0")/.."
build="build-coverage"
jobs=${JOBS:-$(nproc)}

cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=gcc -DCY_COVERAGE=ON >/dev/null
cmake --build "$build" -j "$jobs" >/dev/null
find "$build" -name '*.gcda' -delete
status=0
(cd "$build" && ctest -j "$jobs" -LE "${EXCEPT:-long|slow|tidy|evidence}" --output-on-failure | tail -n 20) ||
    status=$?

# gcov's summaries come as "File 'x'", "Lines executed:p% of n", "Branches executed:..", "Taken at
# least once:p% of n"; at the end "Lines executed" of everything, headers too, without a "File".
find "$build/CMakeFiles/cyclotron_lib.dir" "$build/CMakeFiles/cyclotron.dir" -name '*.gcno' \
    -exec gcov --branch-probabilities --no-output --source-prefix "$PWD" {} + 2>/dev/null |
    awk -v quote="'" '
        function share(text) { sub(/.*:/, "", text); sub(/%.*/, "", text); return text }
        function total(text) { sub(/.* of /, "", text); return text }
        /^File / {
            split($0, part, quote)
            file = part[2]
            sub(/.*\/src\//, "src/", file)
            wanted = file ~ /^src\/.*\.c$/
            begun = 1
        }
        /^Lines executed/ && !begun { wanted = 0 }
        wanted && /^Lines executed/ { lines[file] = total($0); hit[file] = share($0); begun = 0 }
        wanted && /^Taken at least once/ { branches[file] = total($0); taken[file] = share($0) }
        END {
            for (file in lines) {
                printf "%-48s %7.2f%% of %5d lines %7.2f%% of %5d branches\n", file, hit[file],
                    lines[file], taken[file], branches[file] | "sort"
                all += lines[file]
                reached += lines[file] * hit[file] / 100
                ways += branches[file]
                went += branches[file] * taken[file] / 100
            }
            close("sort")
            if (all == 0) exit 1
            printf "coverage: %.2f %% of %d lines, %.2f %% of %d branches\n", 100 * reached / all,
                all, (ways > 0 ? 100 * went / ways : 0), ways
        }'
exit "$status"
