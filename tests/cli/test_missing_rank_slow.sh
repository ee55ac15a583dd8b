#!/usr/bin/env bash
# A process of the job that never becomes a rank: the others say so, once, and the job ends.
. "$(dirname "$0")/lib.sh"

if ! "$cyclotron" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
    echo "no MPI: processes are not tested"
    finish
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
program=$cyclotron
cyclotron=$folder/mpi

cat >"$folder/config.json" <<JSON
{"model": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
  "num_attention_heads": 2, "vocab_size": 300},
 "training": {"seq_length": 32, "micro_batch_size": 2, "total_train_steps": 3}}
JSON

# missing WHERE [RANKS]: the job of three processes whose first or last one sleeps.
missing() {
    printf '#!/bin/sh\nexec mpirun --oversubscribe %s\n' "$1" >"$folder/mpi"
    chmod +x "$folder/mpi"
    expect 1 bench
    says err "start of MPI: after 10 s not all ranks of ${2:-3} have come"
    check "said once" test "$(grep -c 'cyclotron: error' "$folder/err")" = 1
}

rank="$program bench step $folder/config.json --json --distributed.dp_size=3 --distributed.timeout_s=1"
missing "-n 2 $rank : -n 1 sleep 100"
missing "-n 1 sleep 100 : -n 2 $rank"
missing "-n 2 ${rank/dp_size=3/dp_size=6} : -n 1 sleep 100" 6 # two ranks in each process
finish
