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
