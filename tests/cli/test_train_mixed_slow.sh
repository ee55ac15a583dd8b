#!/usr/bin/env bash
# Processes that have several ranks each, as threads: the bits of one rank on every mesh, runs that go on
# in another world, processes that are killed or asked to stop, and numbers that do not go together.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

if ! "$cyclotron" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
    echo "no MPI: processes are not tested"
    exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
program=$cyclotron

awk 'BEGIN { for (i = 0; i < 400; i++) printf "%04d And it came to pass in the days of the king.\n", i * 7919 % 1000 }' \
    >"$folder/text.txt"
expect 0 tokenizer train --vocab-size=300 --out="$folder/tokenizer.json" "$folder/text.txt"
cat >"$folder/config.json" <<JSON
{"model": {"num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 64,
  "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 304, "dtype": "bf16"},
 "training": {"seq_length": 128, "micro_batch_size": 1, "global_batch_size": 4, "grad_clip": 1.0,
  "strict": true, "total_train_steps": 3},
 "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
 "distributed": {"threads_per_rank": 1},
 "logging": {"hash_frequency": 1, "measure_peak": false}}
JSON

# train STATUS PROCESSES RUN OPTIONS...: under mpirun, or without it where PROCESSES is 0.
train() {
    local status=$1 processes=$2 run=$3
    shift 3
    printf '#!/bin/sh\nexec mpirun --oversubscribe -n %s %s "$@"\n' "$processes" "$program" \
        >"$folder/mpi"
    chmod +x "$folder/mpi"
    cyclotron=$folder/mpi
    [ "$processes" = 0 ] && cyclotron=$program
    expect "$status" train "$folder/config.json" --logging.run_dir="$folder/$run" "$@"
}

# steps RUN: number, loss with all its digits and hash of all parameters of each step.
steps() {
    sed -E 's/.*"step":([0-9]+),.*"loss":([0-9.]+).*params_hash":"([0-9a-f]+)".*/\1 \2 \3/' \
        "$folder/$1/metrics.jsonl"
}

# mesh PROCESSES RUN SIZES...: the run has the bits of one rank.
mesh() {
    local processes=$1 run=$2
    shift 2
    train 0 "$processes" "$run" "${@/#/--distributed.}"
    same "one rank and $* in $processes processes" "$(steps one)" "$(steps "$run")"
}

train 0 0 one
same "steps of one rank" 3 "$(steps one | wc -l)"
mesh 2 dp_pp dp_size=2 pp_size=2
mesh 1 tp_dp tp_size=2 dp_size=2
mesh 2 cp_tp cp_size=2 tp_size=2
mesh 2 tp_pp_dp tp_size=2 pp_size=2 dp_size=2
mesh 4 pp_dp pp_size=4 dp_size=2 pp_engine=afab
mesh 2 pipeline pp_size=4 pp_engine=zero_bubble
mesh 2 chunks pp_size=2 tp_size=2 pp_engine=interleaved pp_chunks=2
mesh 2 zero dp_size=4 zero_stage=3
mesh 2 order tp_size=2 dp_size=2 rank_order=dp,pp,cp,tp

# In floats too: sums have one order, whatever carries them.
train 0 0 threads --training.strict=false --distributed.dp_size=2 --distributed.tp_size=2
train 0 2 floats --training.strict=false --distributed.dp_size=2 --distributed.tp_size=2
same "threads of one process and of two" "$(steps threads)" "$(steps floats)"

# A save of one world goes on in another, there and back.
train 0 2 first --distributed.tp_size=2 --distributed.pp_size=2 --training.total_train_steps=1 \
    --checkpoint.save_dir="$folder/saves"
train 0 0 second --training.total_train_steps=2 --checkpoint.save_dir="$folder/saves" \
    --checkpoint.load_path="$folder/saves"
train 0 2 third --distributed.dp_size=4 --distributed.zero_stage=1 \
    --checkpoint.load_path="$folder/saves"
same "one run and three of three worlds" "$(steps one)" "$(for run in first second third; do steps "$run"; done)"

# Numbers that do not go together.
train 2 2 refused --distributed.dp_size=3
says err 'dp_size 3 = 3 ranks, 2 processes were started'
says err 'start 3 or a divisor of it, or dp_size 2 would do'

# begin_job NAME OPTIONS...: two processes of two ranks that train for long, past their third step.
begin_job() {
    local name=$1
    shift
    # A mpirun that ends its job reads no output meanwhile, and a rank that prints waits for it.
    mpirun --oversubscribe --mca odls_base_sigkill_timeout 4 -n 2 "$program" train \
        "$folder/config.json" --logging.run_dir="$folder/$name" --distributed.dp_size=4 \
        --logging.log_frequency=10000000 --training.total_train_steps=10000000 "$@" \
        >"$folder/out" 2>"$folder/err" </dev/null &
    job=$!
    for ((i = 0; i < 600; i++)); do
        grep -qs '"step":3,' "$folder/$name/metrics.jsonl" && return
        sleep 0.1
    done
}

# end_job WHAT: it ends by itself.
end_job() {
    for ((i = 0; i < 300; i++)); do
        kill -0 "$job" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$job" 2>/dev/null; then
        echo "FAIL: $1: the job goes on after 30 s"
        failures=$((failures + 1))
        pgrep -P "$job" | xargs -r kill -9
        kill -9 "$job"
    fi
    wait "$job"
    status=$?
}

# A process that is killed takes its two ranks with it; who names which rank first is a race between
# the other process and mpirun.
begin_job killed
kill -KILL "$(pgrep -P "$job" | tail -n 1)"
end_job KILL
check "the status after SIGKILL: $status" test "$status" != 0
check "who was killed" grep -qE 'process rank 1 |process is gone of rank [23] ' "$folder/err"

# A process that stops shows no heartbeat.
begin_job stopped --distributed.timeout_s=2
kill -STOP "$(pgrep -P "$job" | tail -n 1)"
end_job STOP
check "the status after SIGSTOP: $status" test "$status" = 1
check "who has stopped" grep -qE 'no heartbeat for 2 s from rank [23] ' "$folder/err"
same "errors" 1 "$(grep -c 'cyclotron: error' "$folder/err")"

# Asked to stop, a job saves first.
for signal in INT TERM; do
    begin_job "asked_$signal" --checkpoint.save_dir="$folder/asked_$signal/saves"
    kill -"$signal" "$job"
    end_job "$signal"
    check "the status after SIG$signal: $status" test "$status" != 0
    says err "in $folder/asked_$signal/saves"
    last=$(steps "asked_$signal" | tail -n 1 | sed 's/ .*//')
    train 0 0 "after_$signal" --checkpoint.load_path="$folder/asked_$signal/saves" \
        --training.total_train_steps=$((last + 1))
    same "the step after SIG$signal" $((last + 1)) "$(steps "after_$signal" | sed 's/ .*//')"
done
finish
