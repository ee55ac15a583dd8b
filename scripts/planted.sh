#!/usr/bin/env bash
# Compiling a broken source beside a build and running a test on it. Sourced by scripts/faults.sh and
# scripts/mutation.sh after `build` (its absolute path) and `work` (a folder of their own) are set.
#
# The broken object is linked in front of the static library, so that neither the sources nor the
# build change: the linker takes its functions and leaves the good object in the archive.
# shellcheck disable=SC2154,SC2001 # of who sources it; sed has the patterns

# use_build FOLDER: what is compiled and run from here on belongs to the build there.
use_build() {
    build=$1
    library=$build/CMakeFiles/cyclotron_lib.dir
    archive=$build/libcyclotron.a
    if [ ! -e "$library/flags.make" ] || [ ! -e "$archive" ]; then
        echo "$(basename "$0" .sh): error: $build holds no static library that CMake's makefiles built" >&2
        exit 2
    fi
    compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
    # Tests ask for the sanitizer as CTest tells them of it.
    SANITIZED=$(sed -n 's/^CY_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt")
    export SANITIZED
    rm -f "$work/cyclotron.is"
}
use_build "$build"
flag() { sed -n "s/^$1 = //p" "$library/flags.make"; }

# compile SOURCE OBJECT [PATH]: as the library's sources are, but for warnings. PATH is where the
# source stands in the tree; some have options of their own.
compile() {
    local own=
    if [ $# -gt 2 ]; then
        own=$(sed -n "s|^# Custom options: .*/$3\.o_OPTIONS = ||p" "$library/flags.make" | tr ';' ' ')
    fi
    eval "\"$compiler\" $(flag C_DEFINES) $(flag C_INCLUDES) $(flag C_FLAGS) $own -w" \
        "-c \"$1\" -o \"$2\""
}

# link FOLDER TARGET OBJECT OUT: a program of the build with an object in front of the library's, or
# in the place of the program's own object that ends in $in_place.
in_place=
link() {
    local command object=$3
    command=$(cat "$1/CMakeFiles/$2.dir/link.txt")
    if [ -n "$in_place" ] && [ -n "$object" ]; then
        command=$(sed "s| [^ ]*/$in_place | $object |" <<<"$command")
        object=
    fi
    command=$(sed "s| -o [^ ]* | -o $4 $object |" <<<"$command")
    rm -f "$4"
    (cd "$1" && eval "$command")
}

# test_file TEST: where a test stands, by its name as CTest has it.
test_file() {
    find "tests/${1%%.*}" -name "test_${1#*.}.c" -o -name "test_${1#*.}.sh" | head -n 1
}

# link_program OBJECT: the program itself into $work/cyclotron, unless it is there already. Who makes
# another object of that name removes $work/cyclotron.is.
link_program() {
    if [ -e "$work/cyclotron.is" ] && [ "$(cat "$work/cyclotron.is")" = "$1" ]; then return 0; fi
    link "$build" cyclotron "$1" "$work/cyclotron" || return
    printf '%s' "$1" >"$work/cyclotron.is"
}

# run_test TEST OBJECT LOG [LIMIT]: runs a test with an object linked in; "" is the unbroken test. The
# limit is in seconds of processor time, so that a busy machine fails no test; what waits for ever
# ends after four times as long. 120: it does not link.
run_test() {
    local limit=${4:-600}
    local label=${1%%.*} name=${1#*.} file program=$build/cyclotron
    file=$(test_file "$1")
    case $file in
    *.c)
        link "$build/tests" "test_${label}_$name" "$2" "$work/program" || return 120
        if [ "$label" = cli ]; then
            link_program "$2" || return 120
            program=$work/cyclotron
        fi
        # In a shell of its own, which says of an abort what it has to say in the log.
        (ulimit -t "$limit" && CYCLOTRON=$program SOURCE=$PWD \
            timeout "$((4 * limit))" "$work/program" || exit "$?") >"$3" 2>&1
        ;;
    *.sh)
        link_program "$2" || return 120
        (ulimit -t "$limit" && CYCLOTRON=$work/cyclotron SOURCE=$PWD EXAMPLES=$build/examples \
            timeout "$((4 * limit))" bash "$file" || exit "$?") >"$3" 2>&1
        ;;
    *)
        echo "$(basename "$0" .sh): error: there is no test $1" >&2
        exit 2
        ;;
    esac
}
