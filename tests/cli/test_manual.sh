#!/usr/bin/env bash
# The pages made from the commands' tables: help of each command, the manual, the completion.

. "$(dirname "$0")/lib.sh"

# Every command and subcommand has a page, and refuses an option that it does not have.
commands=$("$cyclotron" --help=words) || failures=$((failures + 1))
for command in $commands; do
    expect 0 "$command" --help
    is err ""
    case $(head -1 "$folder/out") in
    *"<command>"*)
        subcommands=$("$cyclotron" "$command" --help=words)
        for subcommand in $subcommands; do
            expect 0 "$command" "$subcommand" --help
            says out "usage: cyclotron $command $subcommand"
            says out '--help'
        done
        ;;
    *)
        says out "usage: cyclotron $command"
        expect 2 "$command" --no-such-option=1
        says err "cyclotron $command has no option --no-such-option"
        ;;
    esac
done

# A page as it stands: one with everything that a line of options may have, and the line of another.
expect 0 checkpoint import --help
is out "usage: cyclotron checkpoint import HF_DIR [--option=value ...]

Turns a Hugging Face folder into a checkpoint.

Training and generation also take such a folder as it is. With --link the checkpoint takes
no room and is made as fast as its files are read; who writes into the folder's files then
changes the checkpoint, which is found when it is next loaded.

options:
  --out=DIR                 the new checkpoint (required)
  --link                    give the folder's files a second name instead of copying them
  --help                    this page"
expect 0 doctor --help
[ "$(head -1 "$folder/out")" = "usage: cyclotron doctor [--option=value ...]" ] ||
    { echo "FAIL: the line of doctor"; failures=$((failures + 1)); }
expect 0 train --help
[ "$(head -1 "$folder/out")" = "usage: cyclotron train CONFIG [--section.key=value ...]" ] ||
    { echo "FAIL: the line of train"; failures=$((failures + 1)); }
last=$(tail -1 "$folder/out")
[ "$last" = "  --section.key=value       any key of the configuration; \
'cyclotron config show --keys' lists them" ] || { echo "FAIL: the end of train: $last"; failures=$((failures + 1)); }

# The manual has all of them, and man reads it without a complaint.
expect 0 man
cp "$folder/out" "$folder/cyclotron.1"
for command in $commands; do says out ".SS cyclotron $command"; done
says out 'training.learning_rate'
if command -v groff >/dev/null; then
    complaints=$(groff -man -Tascii -ww "$folder/cyclotron.1" 2>&1 >/dev/null)
    [ -z "$complaints" ] || {
        echo "FAIL: groff: $complaints"
        failures=$((failures + 1))
    }
fi

# The completion, as bash would call it.
expect 0 completion bash
cp "$folder/out" "$folder/completion"
complete_words() {
    PATH="$(dirname "$cyclotron"):$PATH" bash --norc -c '
        . "$0"
        compopt() { :; }
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _cyclotron
        printf "%s\n" "${COMPREPLY[@]}"' "$folder/completion" "$@" | sort | tr '\n' ' '
}
completes() {
    local wanted=$1
    shift
    local found
    found=$(complete_words "$@")
    [ "$found" = "$wanted" ] || {
        echo "FAIL: completion of '$*' is '$found', wanted '$wanted'"
        failures=$((failures + 1))
    }
}
cd "$folder" || exit 1 # file names are completed too
completes 'config ' cyclotron conf
completes 'check ' cyclotron config ch
completes '--for= ' cyclotron config check --fo
completes '--training.learning_rate= ' cyclotron config show --training.learn
completes '--skip= ' cyclotron metrics run --sk
expect 2 completion fish
says err 'cyclotron completion knows bash and zsh, not fish'

finish
