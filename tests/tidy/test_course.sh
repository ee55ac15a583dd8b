#!/usr/bin/env bash
# docs/ as a course: every page is in the reading order of docs/README.md, and every chapter of a
# mechanism begins with its problem, has a picture, walks through the code, and ends with mistakes made
# elsewhere, each with its source, and with exercises, each with the test or the command that tells
# whether it is done.
# shellcheck disable=SC2016 # awk's, and backticks of the pages, not the shell's
set -euo pipefail
cd "$SOURCE"
faults=0

report() {
    printf '%s\n' "$1"
    faults=$((faults + 1))
}

for page in docs/*.md; do
    name=$(basename "$page")
    [ "$name" = README.md ] || grep -qF "($name)" docs/README.md ||
        report "docs/README.md: $page is not in the course"
done

known=$(mktemp)
trap 'rm -f "$known"' EXIT
{
    find tests -name 'test_*.[cs]*' | sed -E 's/\.(c|sh)$//; s#^tests/([a-z]+)/(.*/)?test_#\1.#'
    for patch in tests/faults/*.patch; do basename "$patch" .patch; done
} >"$known"

chapters=0
for name in step mesh collectives data-parallel zero tensor-parallel context-parallel pipeline \
    equivalence checkpoints memory device kernels model data inference observe; do
    chapters=$((chapters + 1))
    awk -v name="$name" '
        function report(text) { printf "docs/%s.md: %s\n", name, text; faults++ }
        function end_exercise() {
            if (exercise != "" && !told) report("no test or command for: " exercise)
            exercise = ""; told = 0
        }
        NR == FNR { known[$1] = 1; next }
        /^## / { end_exercise(); part = $0; next }
        /^\|?---|^```/ { pictures += /^```/ }
        part == "" && /[.?:]$/ { opening++ }
        part == "## The walk" && /^\|.*`(src|scripts)\// { steps++ }
        part == "## Mistakes made elsewhere" {
            if (/^\* \*\*/) mistakes++
            line = $0
            while (match(line, /\(https:\/\/[^)]+\)/)) { sources++; line = substr(line, RSTART + RLENGTH) }
        }
        part == "## Exercises" {
            if (/^[0-9]+\. \*\*/) { end_exercise(); exercise = $0; exercises++ }
            line = $0
            gsub(/[`|;:,()^$\x27]/, " ", line)
            count = split(line, words, /[ \t]+/)
            for (i = 1; i <= count; i++) {
                word = words[i]
                sub(/\.$/, "", word)
                if (word in known || word ~ /^(tests|scripts|bench)\// || word == "cyclotron") told = 1
                if (word ~ /^(unit|kernel|dist|golden|cli|tidy)\.[a-z]/ && !(word in known)) report("no test " word)
                if (words[i - 1] ~ /faults\.sh$/ && word ~ /^[a-z]+-[a-z-]+$/ && !(word in known)) {
                    report("no planted fault " word)
                }
            }
        }
        END {
            end_exercise()
            if (mistakes < 2 || sources < 2) report(mistakes + 0 " mistakes made elsewhere with " sources + 0 " sources")
            if (exercises < 2) report(exercises + 0 " exercises")
            if (pictures < 2) report("no picture")
            if (opening < 1) report("no problem at its beginning")
            if (steps < 3) report("a walk of " steps + 0 " files")
            exit faults > 0
        }' "$known" "docs/$name.md" || faults=$((faults + 1))
done

[ "$chapters" -ge 14 ] || report "only $chapters chapters were looked at"
exit $((faults > 0))
