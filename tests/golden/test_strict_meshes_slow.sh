#!/usr/bin/env bash
# Strict mode has the bits of tests/golden/strict/meshes.txt: 40 configurations, most of them on meshes of
# 2 to 16 ranks. The file was written before the tree was restructured, and holds every change since to it.
. "${SOURCE:-.}/tests/cli/lib.sh"
# shellcheck source=strict_hashes.sh
. "$source_folder/tests/golden/strict_hashes.sh"

strict_start
for name in $(strict_mesh_names); do
    strict_compare_mesh "$name"
done
exit $((failures > 0))
