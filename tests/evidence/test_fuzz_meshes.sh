#!/usr/bin/env bash
# Half a minute of random configurations on random meshes of up to 16 ranks against one rank: today's cases.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
MESH_FUZZ=$folder bash "$SOURCE/scripts/mesh_fuzz.sh" --seconds=30 --ranks=16
