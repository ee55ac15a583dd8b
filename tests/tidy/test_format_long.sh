#!/usr/bin/env bash
# C files are as `make format` leaves them.
set -euo pipefail
cd "$SOURCE"
if ! command -v clang-format >/dev/null; then
    echo "skipped: no clang-format here"
    exit 77
fi
find src include tests bench examples -name '*.[ch]' -print0 2>/dev/null |
    xargs -0 clang-format --dry-run --Werror
