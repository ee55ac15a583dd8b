#!/usr/bin/env bash
# The frame of the program: how it is called, what it says when it is called wrongly, its status.

. "$(dirname "$0")/lib.sh"

expect 0 --version
for line in 'cyclotron ' 'commit: ' 'compiler: ' 'backends: self threads' 'processor:'; do
    says out "$line"
done
is err ""
expect 0 --version --json
says out '{"version": "'
says out '"backends": ["self", "threads"'
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$folder/out" || failures=$((failures + 1))
is err ""

expect 0 --help
says out 'usage: cyclotron <command>'
is err ""

expect 2
is out ""
says err 'cyclotron: error: cyclotron needs a command'
says err 'usage: cyclotron <command>'
expect 2 config
says err 'cyclotron: error: cyclotron config needs a command'

expect 2 versoin
is err "cyclotron: error: there is no command 'cyclotron versoin'
  hint: did you mean 'version'?"

# What is to come says so, and what does its work meanwhile.
expect 2 monitor run
is out ""
says err "cyclotron: error: this version has no command 'monitor' yet"
says err "  hint: 'cyclotron metrics RUN --plot'"
expect 2 submit config.json
says err "cyclotron: error: this version has no command 'submit' yet"
says err "  hint: in a job script, 'srun cyclotron train CONFIG'"

expect 2 version --hepl
says err 'cyclotron: error: cyclotron version has no option --hepl'
says err '  hint: did you mean --help?'

expect 2 version one
says err "'one' is one argument too many"

# Every fault of a command line at once: kinds, ranges, what is missing, what is given twice.
expect 2 schedule --engine=1f1 --stages=0 --microbatches=x --stages=2 --forward=1e9
is out ""
is err "cyclotron: error: --engine=1f1: one of afab|1f1b|interleaved|zero_bubble|csv is wanted
cyclotron: error: --stages=0: a whole number from 1 to 1024 is wanted
cyclotron: error: --microbatches=x: a whole number from 1 to 65536 is wanted
cyclotron: error: --stages is given twice
cyclotron: error: --forward=1e9: a number from 0.001 to 1000000 is wanted
  hint: 'cyclotron schedule --help' shows how it is called"
expect 2 schedule --engine afab --stages
is err "cyclotron: error: --stages needs a value
cyclotron: error: cyclotron schedule needs --stages
cyclotron: error: cyclotron schedule needs --microbatches
  hint: 'cyclotron schedule --help' shows how it is called"
expect 2 schedule --engine=afab --stages=2 --microbatches=2 --json=perhaps
says err '--json=perhaps: true or false is wanted'
expect 2 config check -- --strange
says err 'configuration: open --strange: No such file'

# Both forms of a value, - and _ alike, a flag switched off, thousands.
expect 0 schedule --engine afab --stages 2 --microbatches 1k --backward_input=1 --json=false
expect 0 schedule --engine=afab --stages=2 --microbatches=1000 --backward-input 1
cp "$folder/out" "$folder/first"
expect 0 schedule --engine=afab --stages=2 --microbatches=1e3
is out "$(cat "$folder/first")"

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
