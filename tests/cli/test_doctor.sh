#!/usr/bin/env bash
# cyclotron doctor: findings, as lines and as JSON. What they say depends on the machine.

. "$(dirname "$0")/lib.sh"

expect 0 doctor --quick
for name in build oneDNN MPI processor cores instructions memory; do
    grep -qE "^(ok|missing) +$name " "$folder/out" || {
        echo "FAIL: nothing is said of $name"
        failures=$((failures + 1))
    }
done
is err ""
expect 0 doctor --quick --json
says out '{"name": "cores", "state": "ok", "finding": "'
[ "$(head -c 2 "$folder/out" | tr -d '\n')" = '[' ] || failures=$((failures + 1))

# What starts ranks on many machines: either of two programs.
if "$cyclotron" --version | grep -q '^backends:.* mpi'; then
    mkdir "$folder/none" "$folder/mpirun" "$folder/srun"
    for name in mpirun srun; do
        printf '#!/bin/sh\n' >"$folder/$name/$name"
        chmod +x "$folder/$name/$name"
        PATH=$folder/$name expect 0 doctor --quick
        says out 'mpirun             found'
    done
    PATH=$folder/none expect 0 doctor --quick
    says out 'neither mpirun nor srun is in PATH'
fi

finish
