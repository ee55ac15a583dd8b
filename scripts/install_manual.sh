#!/usr/bin/env bash
# install_manual.sh PROGRAM MAN_FOLDER COMPLETION_FOLDER: the man page and the shell completion that
# the program writes from its option tables, where it has the commands for it.
set -euo pipefail
program=$1 manual=$2 completion=$3

# write FILE COMMAND...: what `program COMMAND...` prints, unless there is no such command (status 2).
write() {
    local file=$1 status=0
    shift
    "$program" "$@" >"$file.part" 2>/dev/null || status=$?
    case $status in
    0) mv "$file.part" "$file" ;;
    2) rm -f "$file.part" ;;
    *)
        rm -f "$file.part"
        echo "install: error: '$program $*' ended with status $status" >&2
        exit 1
        ;;
    esac
}

mkdir -p "$manual" "$completion"
write "$manual/cyclotron.1" man
write "$completion/cyclotron" completion bash
rmdir --ignore-fail-on-non-empty "$manual" "$completion"
