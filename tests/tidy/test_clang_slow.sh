#!/usr/bin/env bash
# Everything compiles with clang as it does with gcc, warnings being errors. Only looked at, not
# translated: no object is made.
set -euo pipefail
cd "$SOURCE"
if ! command -v clang >/dev/null; then
    echo "skipped: no clang here"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake -S . -B "$work" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Release >"$work/log" ||
    { tail -n 20 "$work/log"; exit 1; }
# "command": "/usr/bin/clang FLAGS -o OBJECT -c SOURCE"
sed -nE 's/^ *"command": "(.*)",?$/\1/p' "$work/compile_commands.json" | sed 's/\\"/"/g' |
    sed -E 's/ -o [^ ]+ -c / -fsyntax-only /' >"$work/commands"
[ "$(wc -l <"$work/commands")" -gt 200 ] || { echo "hardly anything to compile"; exit 1; }
cd "$work"
tr '\n' '\0' <"$work/commands" | xargs -0 -P "$(nproc)" -I{} sh -c '{} || exit 255'
