#!/usr/bin/env bash
# Random configurations on random meshes agree with one rank: today's cases (scripts/mesh_fuzz.sh).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
MESH_FUZZ=$folder bash "$SOURCE/scripts/mesh_fuzz.sh" --seconds=25
