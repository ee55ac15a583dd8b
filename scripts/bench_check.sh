#!/usr/bin/env bash
# bench_check.sh FIGURES BOUNDS BASELINE LEVEL PART...: holds measured figures to their bounds and to
# what the machine reached before. Prints one line a claim of the parts named, and ends with status 1
# where a bound is missed.
#
# FIGURES has lines `NAME VALUE UNIT`, or `NAME - REASON` where something could not be measured here.
# BOUNDS is bench/bounds.txt. BASELINE has lines as FIGURES and may be missing. LEVEL is the
# instruction set the figures were taken at. A claim of a part that ran without leaving a figure is
# missed: what is not measured must say why.
set -euo pipefail
if [ $# -lt 5 ]; then
    echo "usage: bench_check.sh FIGURES BOUNDS BASELINE LEVEL PART..." >&2
    exit 2
fi
figures=$1 bounds=$2 baseline=$3 level=$4
shift 4
for file in "$figures" "$bounds"; do
    [ -s "$file" ] || { echo "bench_check: error: $file is empty or cannot be read" >&2; exit 2; }
done
[ -e "$baseline" ] || baseline=/dev/null

awk -v level="$level" -v parts=" $* " '
    function part(name) { sub(/\..*/, "", name); return index(parts, " " name " ") > 0 }
    function is_number(text) { return text ~ /^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$/ }
    function rest(from,    i, text) {
        for (i = from; i <= NF; i++) text = text (i > from ? " " : "") $i
        return text
    }
    function tell(name, measured, relation, bound, verdict, source) {
        printf "%-46s %12s %-14s %-5s %8s  %s%s\n", name, measured, unit[name], relation, bound, verdict,
            source == "" ? "" : "  (" source ")"
        count[verdict ~ /^ok/ ? "ok" : verdict ~ /^MISSED/ ? "missed" : "other"]++
    }
    function applies(where,    words, n, i) {
        n = split(where, words, ",")
        for (i = 1; i <= n; i++) if (words[i] == "any" || words[i] == level) return 1
        return 0
    }
    FNR == 1 { file++ }
    /^#/ || NF == 0 { next }
    file == 1 && $2 == "-" { why[$1] = rest(3); next }
    file == 1 {
        if (NF != 3 || !is_number($2)) { print "bench_check: error: no figure: " $0; broken = 1; next }
        if (!($1 in value)) names[++many] = $1
        value[$1] = $2; unit[$1] = $3; delete why[$1]
        next
    }
    file == 2 {
        if (NF < 6 || ($3 != "least" && $3 != "most") || !is_number($4)) {
            print "bench_check: error: no bound: " $0
            broken = 1
            next
        }
        if (!part($1)) next
        claims++
        if ($1 in value) {
            if (unit[$1] != $2) { print "bench_check: error: " $1 " is in " unit[$1] ", the bound in " $2; broken = 1 }
            held = $3 == "least" ? value[$1] >= $4 + 0 : value[$1] <= $4 + 0
            tell($1, sprintf("%.4g", value[$1]), $3, $4,
                !applies($5) ? "not judged on " level : held ? "ok" : "MISSED", rest(6))
        } else {
            unit[$1] = $2
            tell($1, "-", $3, $4, $1 in why ? "not measured here: " why[$1] : "MISSED: no figure", rest(6))
        }
        next
    }
    file == 3 { before[$1] = $2; next }
    END {
        for (i = 1; i <= many; i++) {
            name = names[i]
            if (!part(name) || !(name in before) || unit[name] !~ /^(tok\/s|GB\/s|GFLOP\/s|MB\/s)$/) continue
            claims++
            tell(name, sprintf("%.4g", value[name]), "least", sprintf("%.4g", 0.8 * before[name]),
                value[name] >= 0.8 * before[name] ? "ok" : "MISSED",
                sprintf("%.2f of the baseline, %.4g", value[name] / before[name], before[name]))
        }
        printf "bench: %d claims: %d hold, %d missed, %d not measured or not judged here\n", claims,
            count["ok"], count["missed"], count["other"]
        exit broken || claims == 0 || count["missed"] > 0
    }' "$figures" "$bounds" "$baseline"
