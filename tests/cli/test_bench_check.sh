#!/usr/bin/env bash
# scripts/bench_check.sh on canned figures: bounds that hold and are missed, figures that are missing or
# not measured, levels, baselines, and the table of bounds itself.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# checks STATUS PART...: runs the checker on $folder's figures, bounds and baseline at level avx2.
checks() {
    local wanted=$1 status=0
    shift
    bash "$source_folder/scripts/bench_check.sh" "$folder/figures" "$folder/bounds" "$folder/baseline" \
        avx2 "$@" >"$folder/out" 2>"$folder/err" || status=$?
    same "status of $*" "$wanted" "$status"
}
# line WORDS: a line of the last run begins with the first word and has the others.
line() {
    # shellcheck disable=SC2016 # awk's
    check "a line of $*" awk -v words="$*" '{
        n = split(words, word, " ")
        if ($1 != word[1]) next
        good = 1
        for (i = 2; i <= n; i++) if (index($0, word[i]) == 0) good = 0
        found = found || good
    } END { exit !found }' "$folder/out"
}

cat >"$folder/bounds" <<'BOUNDS'
# a comment
ring.share    of-bandwidth least 0.80 any  C2: a source of several words
ring.time     s            most  1.5  any  T6
ring.wide     of-peak      least 0.9  amx,avx512  a level that this is not
other.share   of-bandwidth least 0.5  any  elsewhere
BOUNDS
cat >"$folder/figures" <<'FIGURES'
ring.share 0.8 of-bandwidth
ring.time 1.5 s
ring.wide 0.1 of-peak
ring.rate 80 GB/s
FIGURES

# On their bounds they hold; what a level does not ask for is shown.
checks 0 ring
line ring.share 0.8 least 0.80 ok C2:
line ring.time 1.5 most ok
line ring.wide 0.1 not judged on avx2
says out 'bench: 3 claims: 2 hold, 0 missed, 1 not measured or not judged here'
# Beyond them each is missed, and the status says so.
sed -i 's/^ring.share 0.8/ring.share 0.79/' "$folder/figures"
checks 1 ring
line ring.share 0.79 MISSED
sed -i 's/^ring.share 0.79/ring.share 8.1e-1/; s/^ring.time 1.5/ring.time 1.51/' "$folder/figures"
checks 1 ring
line ring.time 1.51 MISSED
line ring.share 0.81 ok
sed -i 's/^ring.time 1.51/ring.time 1/' "$folder/figures"
checks 0 ring
# A part that ran and left no figure is missed; one that says why is not.
checks 1 ring other
line other.share MISSED: no figure
echo 'other.share - no MPI here' >>"$folder/figures"
checks 0 ring other
line other.share not measured here: no MPI here
# The machine's own baseline: a fifth slower is missed.
echo 'ring.rate 100 GB/s' >"$folder/baseline"
checks 0 ring
line ring.rate 80 least ok 0.80
echo 'ring.rate 101 GB/s' >"$folder/baseline"
checks 1 ring
line ring.rate MISSED 0.79
rm "$folder/baseline"
# What is not understood is an error, never a claim that holds.
checks 1 nothing
for bad in 'ring.share much of-bandwidth' 'ring.share nan of-bandwidth' 'ring.share 0.9 of-peak'; do
    cp "$folder/figures" "$folder/kept"
    sed -i "s/^ring.share .*/$bad/" "$folder/figures"
    checks 1 ring
    says out 'bench_check: error: '
    mv "$folder/kept" "$folder/figures"
done
echo 'ring.more of-peak below 0.9 any text' >>"$folder/bounds"
checks 1 ring
says out 'no bound: ring.more'
: >"$folder/figures"
checks 2 ring
says err 'is empty'

# The table of the project: names are there once, and each is a part of scripts/bench.sh.
cp "$source_folder/bench/bounds.txt" "$folder/bounds"
mapfile -t parts < <(sed -nE 's/^([a-z_]+)\..*/\1/p' "$folder/bounds" | sort -u)
same "names twice" "none" "none$(grep -v '^#' "$folder/bounds" | awk 'NF { print $1 }' | sort | uniq -d)"
for part in "${parts[@]}"; do
    check "the part $part" grep -qE "(^|[ |])$part( \\||\\))" "$source_folder/scripts/bench.sh"
done
echo 'none.here 1 s' >"$folder/figures"
checks 1 "${parts[@]}"
same "claims of the table" "$(grep -cE '^[a-z]' "$folder/bounds")" "$(grep -c 'MISSED: no figure' "$folder/out")"
finish
