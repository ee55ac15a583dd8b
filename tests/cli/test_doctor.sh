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
    says out "  hint: install openmpi-bin, or load the cluster's module"
    PATH=$folder/none expect 0 doctor --quick --json
    says out ', "hint": "install openmpi-bin, or load the cluster'
fi

# What it measures, each a figure above zero.
expect 0 doctor --threads=1
says out 'kernels            '
says out ', 1 threads'
number='([1-9][0-9]*\.[0-9]|0\.[1-9])'
for what in "products fp32 +$number GFLOP/s" "products bf16 +$number GFLOP/s" \
    "products fp16 +$number GFLOP/s" "memory bandwidth +read $number GB/s, copy $number GB/s"; do
    check "$what" grep -qE "^ok +$what \(measured\)(, peak $number(: slower than fp32)?)?$" \
        "$folder/out"
done

# Who computes what, at each level that this processor has, and which those are where it has not
# got one: no processor is of both families.
levels=$("$cyclotron" doctor --quick | sed -n 's/^ok *instructions *//p')
for level in ref $levels; do
    expect 0 doctor --quick --isa="$level"
    check "level $level" grep -qE "^ok +kernels +$level, " "$folder/out"
    for dtype in fp32 bf16 fp16; do
        check "$dtype at $level" grep -qE "^ok +$dtype is made by +(oneDNN|ours|portable): " \
            "$folder/out"
    done
done
case " $levels " in
*" avx2 "*) other=neon ;;
*) other=avx2 ;;
esac
expect 1 doctor --quick --isa=$other
says err "isa \"$other\": this processor does not support it"
says err '  hint: this processor supports ref'

finish
