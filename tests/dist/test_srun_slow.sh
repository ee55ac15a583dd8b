#!/usr/bin/env bash
# Ranks that Slurm's srun starts, on a Slurm of this test's own: daemons, ports, keys and folders are
# private to it. The bits of one rank, with one rank in each task and with several; a task that is
# killed ends the job; a launcher without MPI's wiring is told, not run as so many jobs.

# shellcheck source=tests/cli/lib.sh
. "${SOURCE:-.}/tests/cli/lib.sh"

skip() {
    echo "srun is not tested: $1"
    exit 77
}

for need in munged slurmctld slurmd srun sinfo scontrol; do
    PATH=$PATH:/usr/sbin command -v $need >/dev/null || skip "there is no $need (slurm-wlm, munge)"
done
"$cyclotron" --version | grep -q '^backends:.* mpi' || skip "no MPI in this build"
export PATH=$PATH:/usr/sbin

daemons=()
# shellcheck disable=SC2317 # the trap calls it
end_daemons() {
    [ ${#daemons[@]} -gt 0 ] && kill "${daemons[@]}" 2>/dev/null
    for ((wait = 0; wait < 50; wait++)); do
        kill -0 "${daemons[@]}" 2>/dev/null || break
        sleep 0.1
    done
    [ ${#daemons[@]} -gt 0 ] && kill -9 "${daemons[@]}" 2>/dev/null
    rm -rf "$folder"
}
trap end_daemons EXIT

# ---- a Slurm of one node, which is this machine

chmod 755 "$folder"
mkdir -m 700 "$folder/state" "$folder/spool" "$folder/munge"
chmod 755 "$folder/munge" # whose socket srun looks for
(umask 077 && head -c 1024 /dev/urandom >"$folder/munge/key")
port=$((20000 + $$ % 20000))
name=$(hostname -s)
user=$(id -un)
cat >"$folder/slurm.conf" <<CONF
ClusterName=cyclotron
SlurmctldHost=$name(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MpiDefault=none
NodeName=$name NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$name Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$folder/slurm.conf
srun --mpi=list 2>&1 | grep -q pmix || skip "this srun has no pmix: $(srun --mpi=list 2>&1 | tail -n 1)"

munged --foreground --force --num-threads=1 --key-file="$folder/munge/key" \
    --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
    --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" >"$folder/munged.out" 2>&1 &
daemons+=($!)
for ((i = 0; i < 300; i++)); do
    [ -S "$folder/munge/socket" ] && break
    sleep 0.1
done
[ -S "$folder/munge/socket" ] || skip "munged does not start: $(tail -n 1 "$folder/munged.out")"
slurmctld -D >"$folder/slurmctld.out" 2>&1 &
daemons+=($!)
slurmd -D -N "$name" >"$folder/slurmd.out" 2>&1 &
daemons+=($!)
disown "${daemons[@]}" # bash tells of no end of theirs
for ((i = 0; i < 600; i++)); do
    sinfo -h -o %T 2>/dev/null | grep -q '^idle' && break
    sleep 0.1
done
sinfo -h -o %T 2>/dev/null | grep -q '^idle' ||
    skip "no node comes up: $(tail -qn 1 "$folder/slurmctld.log" "$folder/slurmd.log")"

# ---- training

awk 'BEGIN { for (i = 0; i < 400; i++) printf "%04d And it came to pass in the days of the king.\n", i * 7919 % 1000 }' \
    >"$folder/text.txt"
expect 0 tokenizer train --vocab-size=300 --out="$folder/tokenizer.json" "$folder/text.txt"
cat >"$folder/config.json" <<JSON
{"model": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
  "num_attention_heads": 4, "vocab_size": 304, "dtype": "bf16"},
 "training": {"seq_length": 64, "micro_batch_size": 1, "global_batch_size": 4, "grad_clip": 1.0,
  "strict": true, "total_train_steps": 3},
 "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
 "distributed": {"threads_per_rank": 1},
 "logging": {"hash_frequency": 1, "measure_peak": false}}
JSON
program=$cyclotron

# tasks NUMBER WIRING: the program of the following runs is so many tasks of srun.
tasks() {
    printf '#!/bin/sh\nexec srun --overcommit -n %s --mpi=%s %s "$@"\n' "$1" "$2" "$program" \
        >"$folder/srun"
    chmod +x "$folder/srun"
    cyclotron=$folder/srun
}

train() { # STATUS RUN OPTIONS...
    local status=$1 run=$2
    shift 2
    expect "$status" train "$folder/config.json" --logging.run_dir="$folder/$run" "$@"
}

steps() {
    sed -E 's/.*"step":([0-9]+),.*"loss":([0-9.]+).*params_hash":"([0-9a-f]+)".*/\1 \2 \3/' \
        "$folder/$1/metrics.jsonl"
}

train 0 one
tasks 4 pmix
train 0 four --distributed.dp_size=2 --distributed.tp_size=2
same "one rank and four tasks" "$(steps one)" "$(steps four)"
tasks 2 pmix
train 0 mixed --distributed.dp_size=2 --distributed.pp_size=2
same "one rank and two tasks of two ranks" "$(steps one)" "$(steps mixed)"

# Numbers that do not go together, and srun without MPI's wiring: each task is a world of one.
train 2 refused --distributed.dp_size=3
says err 'dp_size 3 = 3 ranks, 2 processes were started'
tasks 2 none
train 2 alone --distributed.dp_size=2
says err 'distributed: srun started 2 tasks without the wiring of MPI: each would be alone'
says err 'srun --mpi=pmix, or mpirun'
check "nothing is written by it" test ! -e "$folder/alone"
tasks 1 none
train 0 task --distributed.dp_size=2 # threads of one process
same "one rank and the threads of one task" "$(steps one)" "$(steps task)"

# A task that is killed.
srun --overcommit -n 2 --mpi=pmix "$program" train "$folder/config.json" --distributed.dp_size=4 \
    --logging.run_dir="$folder/killed" --training.total_train_steps=10000000 \
    --logging.log_frequency=10000000 >"$folder/out" 2>"$folder/err" </dev/null &
job=$!
for ((i = 0; i < 600; i++)); do
    grep -qs '"step":3,' "$folder/killed/metrics.jsonl" && break
    sleep 0.1
done
victim=$(pgrep -f "^$program train $folder/config.json.*run_dir=$folder/killed" | tail -n 1)
kill -KILL "$victim"
for ((i = 0; i < 1200; i++)); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
done
if kill -0 "$job" 2>/dev/null; then
    echo "FAIL: the job goes on after two minutes"
    failures=$((failures + 1))
    kill -9 "$job"
fi
wait "$job"
status=$?
check "the status of a job whose task was killed: $status" test "$status" != 0
check "who was killed" grep -qE 'task [01].*Killed|process is gone of rank [0-3] ' "$folder/err"
finish
