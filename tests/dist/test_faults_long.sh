#!/usr/bin/env bash
# Every planted fault is caught by every test that docs/faults.md names for it.
set -euo pipefail
exec "$SOURCE/scripts/faults.sh" --build="$(dirname "$CYCLOTRON")"
