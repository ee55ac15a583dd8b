# What the tests of the command line share. Sourced, not run.

set -u
cyclotron=${CYCLOTRON:-build/cyclotron}
source_folder=${SOURCE:-.}
folder=$(mktemp -d "${TMPDIR:-/tmp}/cyclotron-cli-XXXXXX")
trap 'rm -rf "$folder"' EXIT
failures=0

# expect STATUS ARGUMENTS...: runs the program, keeps $folder/out and $folder/err, compares the
# exit status.
expect() {
    local wanted=$1
    shift
    "$cyclotron" "$@" >"$folder/out" 2>"$folder/err" </dev/null
    local status=$?
    if [ "$status" != "$wanted" ]; then
        echo "FAIL: cyclotron $* ended with $status, wanted $wanted"
        sed 's/^/    /' "$folder/out" "$folder/err" | head -20
        failures=$((failures + 1))
    fi
}

# says out|err WORDS: the stream of the last run holds these words.
says() {
    if ! grep -qF -- "$2" "$folder/$1"; then
        echo "FAIL: $1 does not say: $2"
        sed 's/^/    /' "$folder/$1" | head -20
        failures=$((failures + 1))
    fi
}

# is out|err TEXT: the stream of the last run is exactly this text ("" is nothing at all).
is() {
    if [ "$(cat "$folder/$1")" != "$2" ]; then
        echo "FAIL: $1 differs:"
        diff <(printf '%s\n' "$2") "$folder/$1" | sed 's/^/    /' | head -40
        failures=$((failures + 1))
    fi
}

# is_file out|err NAME: the same against tests/cli/expected/NAME.
is_file() {
    is "$1" "$(cat "$source_folder/tests/cli/expected/$2")"
}

# check WHAT COMMAND...: the command succeeds.
check() {
    local what=$1
    shift
    if ! "$@"; then
        echo "FAIL: $what"
        failures=$((failures + 1))
    fi
}

# holds WHAT EXPRESSION: of awk, over numbers.
holds() {
    check "$1: $2" awk "BEGIN { exit !($2) }"
}

# same WHAT ONE OTHER: two texts are equal and not empty.
same() {
    if [ -z "$2" ] || [ "$2" != "$3" ]; then
        echo "FAIL: $1 differ:"
        diff <(printf '%s\n' "$2") <(printf '%s\n' "$3") | sed 's/^/    /' | head -20
        failures=$((failures + 1))
    fi
}

# value NAME: a number of the JSON that the last run printed.
value() {
    grep -oE "\"$1\": *[-0-9.e+]+" "$folder/out" | sed 's/.*: *//'
}

# A check that is misspelt or of a file that is not sourced would pass without a word. Bash calls this
# in a shell of its own, which cannot count.
command_not_found_handle() {
    echo "FAIL: there is no $1"
    : >"$folder/command-not-found"
    return 127
}

finish() {
    [ "$failures" = 0 ] && [ ! -e "$folder/command-not-found" ] || exit 1
    echo "all as expected"
    exit 0
}
