#!/usr/bin/env bash
# install_manual.sh PROGRAM MAN_FOLDER COMPLETION_FOLDER: the man page and the shell completion that
# the program writes from its option tables, where it has the commands for it.
set -euo pipefail
program=$1 manual=$2 completion=$3

# write COMMAND FILE: what `program COMMAND` prints, unless there is no such command (status 2).
write() {
    local status=0
    "$program" "$1" >"$2.part" 2>/dev/null || status=$?
    case $status in
    0) mv "$2.part" "$2" ;;
    2) rm -f "$2.part" ;;
    *) rm -f "$2.part"; echo "install: error: '$program $1' ended with status $status" >&2; exit 1 ;;
    esac
}

mkdir -p "$manual" "$completion"
write manual "$manual/cyclotron.1"
write completion "$completion/cyclotron"
rmdir --ignore-fail-on-non-empty "$manual" "$completion"
