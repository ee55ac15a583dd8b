#!/usr/bin/env bash
# What docs/equivalence-table.md shows, from the rows that scripts/equivalence.sh left.
#
#   scripts/equivalence_page.sh ROWS...        # files EQUIVALENCE/rows of one or more calls
#
# Prints a table with one line a mesh: how many variants of it were trained (ZeRO stages, engines,
# layouts), and of all of them the worst differences from one rank, mode by mode; then the rows that
# are no mesh of the list, and each row beyond its bounds by name. Where a row was run twice the later
# one counts. The columns say how many rows the list has, so that a table with holes shows them.
set -euo pipefail
[ $# -ge 1 ] || { echo "equivalence_page: error: which rows" >&2; exit 2; }
for file in "$@"; do
    [ -r "$file" ] || { echo "equivalence_page: error: cannot read $file" >&2; exit 2; }
done
list=$(dirname "$0")/equivalence.sh

# listed MODE DTYPE: MODE DTYPE WHAT of each row that a call would run.
listed() {
    local options=(--list --dtype="$2")
    if [ "$1" = strict ]; then options+=(--strict); fi
    bash "$list" "${options[@]}" | sed -e '/^equivalence:/d' -e "s/^/$1 $2\t/" -e 's/ *$//'
}

{
    for mode in strict fast; do
        for dtype in fp32 bf16; do listed "$mode" "$dtype"; done
    done
    echo "-- rows"
    # "DTYPE STEPS STRICT: WHAT", a tab, "LOSS NORM WEIGHTS VERDICT".
    cat "$@" | sed -E -e 's/^(fp32|bf16) [0-9]+ true: /strict \1\t/' \
        -e 's/^(fp32|bf16) [0-9]+ false: /fast \1\t/' -e 's/ *\t/\t/g'
} | awk -F '\t' '
    function mesh_of(what, w) {
        if (split(what, w, " ") >= 8 && w[1] == "tp" && what !~ /backend=mpi|--training/) {
            return w[2] " | " w[4] " | " w[6] " | " w[8]
        }
        return ""
    }
    function ranks_of(mesh, w) { split(mesh, w, / \| /); return w[1] * w[2] * w[3] * w[4] }
    function larger(a, b) { return a + 0 > b + 0 ? a : b }
    $0 == "-- rows" { rows = 1; next }
    !rows {
        total[$1]++
        mesh = mesh_of($2)
        if (mesh == "") {
            if (!($2 in other)) { other[$2] = ++others; name_of[others] = $2 }
            next
        }
        if (!(mesh in known)) { known[mesh] = ++meshes; mesh_at[meshes] = mesh }
        variants[mesh, $1]++
        wanted[$1, $2] = mesh
        next
    }
    { verdict[$1, $2] = $3 }
    END {
        modes = split("strict fp32@strict bf16@fast fp32@fast bf16", mode, "@")
        for (key in verdict) {
            split(key, part, SUBSEP)
            split(verdict[key], v, " ")
            done[part[1]]++
            bad = v[4] != "same" && (v[4] != "ok" || part[1] ~ /^strict/)
            if (bad) off[part[1] ", " part[2]] = verdict[key]
            if (!(key in wanted)) continue
            at = wanted[key] SUBSEP part[1]
            ran[at]++
            same[at] += v[4] == "same"
            loss[at] = larger(v[1], loss[at]); norm[at] = larger(v[2], norm[at])
            weight[at] = larger(v[3], weight[at])
        }
        printf "| tp | cp | pp | dp | ranks | variants |"
        for (i = 1; i <= modes; i++) printf " %s: %d of %d rows |", mode[i], done[mode[i]], total[mode[i]]
        printf "\n|---|---|---|---|---|---|---|---|---|---|\n"
        for (size = 1; size <= 16; size *= 2) {
            for (m = 1; m <= meshes; m++) {
                mesh = mesh_at[m]
                if (ranks_of(mesh) != size) continue
                most = 0
                for (i = 1; i <= modes; i++) most = larger(variants[mesh, mode[i]], most)
                printf "| %s | %d | %d |", mesh, size, most
                for (i = 1; i <= modes; i++) {
                    at = mesh SUBSEP mode[i]
                    if (!ran[at]) { printf " - |"; continue }
                    if (ran[at] < variants[at]) printf " %d run:", ran[at]
                    if (same[at] == ran[at]) printf " same |"
                    else printf " %s, %s, %s |", loss[at], norm[at], weight[at]
                }
                printf "\n"
            }
        }
        printf "\n| besides | strict fp32 | strict bf16 |\n|---|---|---|\n"
        for (i = 1; i <= others; i++) {
            printf "| %s |", name_of[i]
            for (m = 1; m <= 2; m++) {
                found = verdict[mode[m], name_of[i]]
                split(found, v, " ")
                printf " %s |", found == "" ? "-" : v[4]
            }
            printf "\n"
        }
        printf "\nBeyond the bounds:"
        for (key in off) { printf "\n* %s: %s", key, off[key]; count++ }
        printf "%s\n", count ? "" : " none."
    }'
