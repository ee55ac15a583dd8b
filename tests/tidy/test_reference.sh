#!/usr/bin/env bash
# Each public declaration has a comment: Doxygen makes the reference without a warning. Skipped
# where there is no Doxygen.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bash "${SOURCE:-.}/scripts/reference.sh" "$folder"
