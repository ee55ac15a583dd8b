#!/usr/bin/env bash
# Half a minute of random faults to whole runs, each followed by a resume: today's cases.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
RUN_FAULTS=$folder bash "$SOURCE/scripts/run_faults.sh" --seconds=40
