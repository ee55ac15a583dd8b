#!/usr/bin/env bash
# Random small faults in src/, one at a time: does a test notice?
#
#   scripts/mutation.sh [--count=60] [--seed=1] [--only=PATH] [--least=85] [--build=BUILD]
#                       [--leaks=BUILD] [--table=FILE] [--part=1/1] [FILE:LINE:COL...]
#
# Builds in build-mutation, with the assertions of inner loops and the checks of debug builds, and in
# build-leak as `make test-long PARTS=leaks` does, unless --build and --leaks name others that are
# there.
#
# A fault turns one operator, bound, sign or constant into its neighbour: < into <=, + into -, && into
# ||, true into false. The same seed picks the same faults, whatever was added or taken out
# elsewhere: each place has a number of its own made from the seed, the file and the line's text, and
# the smallest are taken. Faults that do not compile, or that compile to the same code, are passed
# over and others drawn, as is the bound of a smaller or larger of two, or of two that differ;
# assertions, messages, tables and comments are left out, and files that this machine does not run.
# Arguments name faults to plant again, as they are printed.
#
# The tests of `make check` run on each fault until one fails: those first that include the header of
# the broken file, then those of its folder, then the others, the quickest first. A test that takes ten
# times the processor time that it took unbroken, and 20 s more, counts as failed. What all of them
# let pass is tried once more under the leak sanitizer, by the tests of that part. Prints a line a
# fault and the share that was caught, and fails below --least per cent. BEFORE=COMMAND is run before
# each fault. --part=2/3 runs the tests on every third fault only, from the second, so that three
# processes share a seed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/leaks.sh
. scripts/leaks.sh

build=
leaks=
count=60
seed=1
only=src
least=85
table=
part=1/1
chosen=()
for argument in "$@"; do
    case $argument in
    --build=*) build=${argument#*=} ;;
    --leaks=*) leaks=${argument#*=} ;;
    --count=*) count=${argument#*=} ;;
    --seed=*) seed=${argument#*=} ;;
    --only=*) only=${argument#*=} ;;
    --least=*) least=${argument#*=} ;;
    --table=*) table=${argument#*=} ;;
    --part=*) part=${argument#*=} ;;
    src/*:*:*) chosen+=("$argument") ;;
    *) echo "mutation: error: what is $argument" >&2; exit 2 ;;
    esac
done
[[ $part =~ ^[1-9][0-9]*/[1-9][0-9]*$ ]] ||
    { echo "mutation: error: --part is not one of several, as 2/3" >&2; exit 2; }
if [ -z "$build" ]; then
    build="build-mutation"
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DCY_DEBUG_ASSERTS=ON >/dev/null
    cmake --build "$build" -j "${JOBS:-$(nproc)}" >/dev/null
fi
if [ -z "$leaks" ]; then
    leaks="build-leak"
    cmake -S . -B "$leaks" "${leak_options[@]}" >/dev/null
    cmake --build "$leaks" -j "${JOBS:-$(nproc)}" >/dev/null
fi
build=$(cd "$build" && pwd)
leaks=$(cd "$leaks" && pwd)
export MALLOC_PERTURB_=165 # memory that is read before it is written holds no zeros
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=scripts/planted.sh
. scripts/planted.sh

# ---- the places: FILE:LINE:COL FROM TO, what stands there and what it becomes, in the order in which
# they are taken.

left_out='/presets\.c|/process_start\.c'
grep -qw amx_tile /proc/cpuinfo || left_out="$left_out|/amx/"
grep -qw avx512_bf16 /proc/cpuinfo || left_out="$left_out|/avx512/"
grep -qw avx2 /proc/cpuinfo || left_out="$left_out|/avx2/"
command -v mpirun >/dev/null || left_out="$left_out|/mpi_"
# shellcheck disable=SC2016 # awk's
find "$only" -name '*.c' | grep -vE "$left_out" | sort | xargs awk -v seed="$seed" '
    BEGIN {
        for (i = 1; i < 256; i++) ord[sprintf("%c", i)] = i
        pairs = split(" < : <= @ <= : < @ > : >= @ >= : > @ == : != @ != : == @ && : || @ || : && @" \
            " + : - @ - : + @ * : + @ / : * @ % : / @ += : -= @ -= : += @return true:return false@" \
            "return false:return true@= true:= false@= false:= true@fmax(:fmin(@fmin(:fmax(@++:--@" \
            " + 1: + 2@ - 1: - 2@ = 0;: = 1;@ = 1;: = 2;@= 0; i: = 1; i", pair, "@")
    }
    # Whether the smaller or larger of two is taken, or which of two that differ is the smaller: what
    # is done where they are equal is the same, or never done.
    function takes_either(text,    words, c) {
        words = "[A-Za-z0-9_.>[\\]-]+"
        if (match(text, "if \\(" words " [<>]=? " words "\\) " words " = " words ";")) {
            split(substr(text, RSTART + 4, RLENGTH - 5), c, / [<>]=? |\) | = /)
            return c[1] == c[3] && c[2] == c[4]
        }
        if (match(text, "if \\(" words " != " words "\\) return " words " [<>]=? " words " \\?")) {
            split(substr(text, RSTART + 4, RLENGTH - 6), c, / != |\) return | [<>]=? /)
            return c[1] == c[3] && c[2] == c[4]
        }
        if (match(text, words " [<>]=? " words " \\? " words " : " words)) {
            split(substr(text, RSTART, RLENGTH), c, / [<>]=? | \? | : /)
            return (c[1] == c[3] && c[2] == c[4]) || (c[1] == c[4] && c[2] == c[3])
        }
        return 0
    }
    # Below 2^31 - 1; products stay below 2^53.
    function hash(text,    h, i) {
        h = 5381
        for (i = 1; i <= length(text); i++) {
            h = (h * 33 + ord[substr(text, i, 1)]) % 2147483647
        }
        for (i = 0; i < 4; i++) h = (h * (h % 65536 + 2) + 12345) % 2147483647
        return h
    }
    FNR == 1 { off = 0; asserted = 0 }
    /clang-format off/ { off = 1 }
    /clang-format on/ { off = 0 }
    # A message or an assertion goes on to the end of its statement.
    /CY_FAIL|CY_ASSERT|CY_DEBUG_ASSERT|cy_log|_Static_assert/ { asserted = 1 }
    {
        line = $0
        skip = off || asserted || line ~ /^ *\/\// || line ~ /^#/ || line ~ /^static const/ || line ~ /^[a-z]/
        if (line ~ /;[ ]*(\/\/.*)?$/) asserted = 0
        if (skip) next
        # Strings, characters and comments become blanks of the same length.
        plain = line
        while (match(plain, /"([^"\\]|\\.)*"|\x27([^\x27\\]|\\.)+\x27/)) {
            blank = sprintf("%" RLENGTH "s", "")
            gsub(/ /, "_", blank)
            plain = substr(plain, 1, RSTART - 1) blank substr(plain, RSTART + RLENGTH)
        }
        sub(/\/\/.*/, "", plain)
        for (i = 1; i <= pairs; i++) {
            if (split(pair[i], side, ":") != 2) continue
            if (side[1] ~ /^ [<>]=? $/ && takes_either(plain)) continue
            at = 0
            while ((next_at = index(substr(plain, at + 1), side[1])) > 0) {
                at += next_at
                what = FILENAME ":" line ":" at ":" pair[i]
                printf "%d\t%s:%d:%d\t%s\t%s\n", hash(seed ":" what ":" ++met[what]), FILENAME,
                    FNR, at, side[1], side[2]
            }
        }
    }' | sort -k1,1n -k2 | cut -f 2- >"$work/places"
places=$(wc -l <"$work/places")
[ "$places" -gt 0 ] || { echo "mutation: error: no place in $only" >&2; exit 2; }

# ---- the tests of `make check`, with the time that each took, unbroken

# time_tests WITHOUT: those of the build that is in use, but for these, into $work/times.
time_tests() {
    local times=$build/mutation.times # of the last run, as long as the library is the same
    local name start status took
    (cd "$build" && ctest -N -LE 'slow|long|tidy|evidence') |
        sed -nE 's/^ *Test +#[0-9]+: ((unit|kernel|dist|golden|cli)\.[a-z0-9_]+)$/\1/p' |
        grep -vxE "$1" >"$work/tests"
    : >"$work/times"
    if [ -e "$times" ] && [ "$times" -nt "$archive" ]; then
        grep -wFf "$work/tests" "$times" >"$work/times" || true
        cut -d ' ' -f 1 "$work/times" >"$work/timed"
        grep -vxFf "$work/timed" "$work/tests" >"$work/new" || true
        mv "$work/new" "$work/tests"
    fi
    while IFS= read -r name; do
        start=$(date +%s%N)
        status=0
        run_test "$name" "" "$work/log" </dev/null || status=$?
        took=$((($(date +%s%N) - start) / 1000000))
        case $status in
        0) echo "$name $took" >>"$work/times" ;;
        77) ;; # skipped here
        *)
            tail -n 20 "$work/log" >&2
            echo "mutation: error: $name fails without a fault" >&2
            exit 1
            ;;
        esac
    done <"$work/tests"
    cp "$work/times" "$times"
}
plain=$build
programs=cli.examples # of their own, which nothing is linked into
use_build "$leaks"
time_tests "$programs|$leak_left_out"
mv "$work/times" "$work/times.leaks"
use_build "$plain"
time_tests "$programs"
mv "$work/times" "$work/times.plain"

# tests_for FILE TIMES: names and times, the likeliest to notice first.
tests_for() {
    local header=${1#src/} folder
    header=${header%.c}
    folder=$(dirname "$header")
    while read -r name took; do
        local file rank=3
        file=$(test_file "$name")
        # The program's own files are in no other program.
        if [ "$folder" = cli ] && [ "${name%%.*}" != cli ]; then continue; fi
        if grep -qF "\"$header.h\"" "$file" || [ "${name#*.}" = "$(basename "$header")" ]; then
            rank=0
        elif grep -qF "\"$folder/" "$file" || [[ $name == *"$(basename "$header")"* ]]; then
            rank=1
        elif [ "$folder" = cli ] && [ "${name%%.*}" = cli ]; then
            rank=2
        fi
        echo "$rank $took $name"
    done <"$2" | sort -k1,1n -k2,2n | awk '{ print $3, $2 }'
}

# ---- one fault after the other

# try_tests FILE OBJECT TIMES: the first test that fails with the fault, in `by`; "" for none.
try_tests() {
    local name took status
    by=
    rm -f "$work/cyclotron.is"
    while read -r name took; do
        status=0
        run_test "$name" "$2" "$work/log" $((took / 100 + 20)) </dev/null || status=$?
        if [ "$status" -eq 120 ]; then
            echo "mutation: error: $name does not link" >&2
            exit 1
        elif [ "$status" -ne 0 ] &&
            ! run_test "$name" "$2" "$work/log" $((took / 100 + 20)) </dev/null; then
            by=$name # twice: no accident of a busy machine
            break
        fi
    done < <(tests_for "$1" "$3")
}

tried=0 planted=0 caught=0 drawn=0
while [ "$tried" -lt "$count" ]; do
    if [ ${#chosen[@]} -gt 0 ]; then
        [ "$tried" -lt ${#chosen[@]} ] || break
        place=$(grep -m 1 -F "${chosen[$tried]}"$'\t' "$work/places") ||
            { echo "mutation: error: no place ${chosen[$tried]}" >&2; exit 2; }
    else
        drawn=$((drawn + 1))
        [ "$drawn" -le "$places" ] || { echo "mutation: error: no further place" >&2; exit 2; }
        place=$(sed -n "${drawn}p" "$work/places")
    fi
    IFS=$'\t' read -r where from to <<<"$place"
    IFS=: read -r file number column <<<"$where"
    awk -v number="$number" -v column="$column" -v from="$from" -v to="$to" '
        NR == number { $0 = substr($0, 1, column - 1) to substr($0, column + length(from)) }
        { print }' "$file" >"$work/mutant.c"
    in_place=
    if [[ $file == src/cli/* ]]; then in_place=$file.o; fi # the program's own, not the library's
    compile "$file" "$work/good.o" "$file"
    compile "$work/mutant.c" "$work/mutant.o" "$file" 2>/dev/null || continue
    # The same code is the same program; the names of the two sources are no part of it.
    objcopy -O binary -j .text -j .rodata "$work/good.o" "$work/good.bin" 2>/dev/null || true
    objcopy -O binary -j .text -j .rodata "$work/mutant.o" "$work/mutant.bin" 2>/dev/null || true
    if cmp -s "$work/good.bin" "$work/mutant.bin" &&
        cmp -s <(objdump -dr "$work/good.o" | tail -n +4) <(objdump -dr "$work/mutant.o" | tail -n +4); then
        continue
    fi
    tried=$((tried + 1))
    [ $(((tried - 1) % ${part#*/})) -eq $((${part%/*} - 1)) ] || continue
    planted=$((planted + 1))
    ${BEFORE:-true}
    try_tests "$file" "$work/mutant.o" "$work/times.plain"
    # Without MPI and oneDNN some files are not there.
    if [ -z "$by" ] && find "$leaks" -path "*/$file.o" | grep -q .; then
        use_build "$leaks"
        compile "$work/mutant.c" "$work/leaking.o" "$file" 2>/dev/null
        try_tests "$file" "$work/leaking.o" "$work/times.leaks"
        by=${by:+$by under the leak sanitizer}
        use_build "$plain"
    fi
    text=$(sed -n "${number}s/^ *//p" "$file")
    if [ -n "$by" ]; then
        caught=$((caught + 1))
        outcome="caught by $by"
    else
        outcome=SURVIVED
    fi
    printf '%3d %-52s "%s" -> "%s"  %s\n' "$tried" "$where" "$from" "$to" "$outcome"
    [ -n "$by" ] || printf '        %s\n' "$text"
    [ -z "$table" ] || printf '%s\t%s\t%s\t%s\n' "$where" "$from" "$to" "${by:-survived}" >>"$table"
done

[ "$planted" -gt 0 ] || { echo "mutation: error: no fault was planted" >&2; exit 2; }
share=$(awk "BEGIN { printf \"%.1f\", 100 * $caught / $planted }")
echo "mutation: $planted faults of seed $seed, $caught caught ($share %), $((planted - caught)) survived"
awk "BEGIN { exit !($share >= $least) }"
