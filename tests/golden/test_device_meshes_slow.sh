#!/usr/bin/env bash
# The test device has the bits of the CPU on meshes of 1 to 16 ranks: every strict configuration of
# tests/golden/strict/meshes.txt, and one of them under MPI.
. "${SOURCE:-.}/tests/cli/lib.sh"
# shellcheck source=strict_hashes.sh
. "$source_folder/tests/golden/strict_hashes.sh"

on_device=--distributed.device=test
strict_start
for name in $(strict_mesh_names); do
    strict_compare_mesh "$name" $on_device
done

if "$cyclotron" --version | grep -q '^backends:.* mpi' && command -v mpirun >"$folder/log"; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    program=$cyclotron
    printf '#!/bin/sh\nexec mpirun --oversubscribe -n 4 %s "$@"\n' "$program" >"$folder/mpi"
    chmod +x "$folder/mpi"
    cyclotron=$folder/mpi
    strict_compare_mesh tp2_cp2 $on_device
else
    echo "without MPI"
fi
exit $((failures > 0))
