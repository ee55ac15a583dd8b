# The frame of the program: how it is called, what it says when it is called wrongly, its status.

. "$(dirname "$0")/lib.sh"

expect 0 --version
for line in 'cyclotron ' 'commit: ' 'compiler: ' 'backends: self threads' 'processor:'; do
    says out "$line"
done
is err ""

expect 0 --help
says out 'usage: cyclotron <command>'
is err ""

expect 2
is out ""
says err 'usage: cyclotron <command>'

expect 2 versoin
is err "cyclotron: error: there is no command 'cyclotron versoin'
  hint: did you mean 'version'?"

expect 2 version --hepl
says err 'cyclotron: error: cyclotron version has no option --hepl'
says err '  hint: did you mean --help?'

expect 2 version one
says err "'one' is one argument too many"

# What could not be printed is a failure, not a success.
"$cyclotron" --version >/dev/full 2>"$folder/err"
[ $? = 1 ] || { echo "FAIL: a full disk went unnoticed"; failures=$((failures + 1)); }
says err 'cyclotron: error: standard output: No space left on device'

# Colours: none without a terminal, and none on one with NO_COLOR.
if script -qec true /dev/null >/dev/null 2>&1; then
    NO_COLOR='' script -qec "'$cyclotron' nonsense" /dev/null >"$folder/out"
    says out $'\033['
    NO_COLOR=1 script -qec "'$cyclotron' nonsense" /dev/null >"$folder/out"
    if grep -q $'\033' "$folder/out"; then
        echo "FAIL: colours with NO_COLOR"
        failures=$((failures + 1))
    fi
fi

finish
