#!/usr/bin/env bash
# Shell scripts pass shellcheck, and can be run.
set -euo pipefail
cd "$SOURCE"
mapfile -t scripts < <(find scripts tests .ci -name '*.sh' -o -path .ci/run | sort)
[ ${#scripts[@]} -gt 3 ]
for script in "${scripts[@]}"; do
    bash -n "$script"
    case $script in
    scripts/* | .ci/*) [ -x "$script" ] || { echo "$script is not executable"; exit 1; } ;;
    esac
done
if ! command -v shellcheck >/dev/null; then
    echo "skipped: no shellcheck here"
    exit 77
fi
shellcheck -s bash -x -P SCRIPTDIR "${scripts[@]}"
