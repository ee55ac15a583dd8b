#!/usr/bin/env bash
# Training with several ranks, as threads and as processes of MPI: one configuration, one result;
# jobs that do not fit it are refused, once.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { for (i = 0; i < 400; i++) printf "%04d And it came to pass in the days of the king.\n", i * 7919 % 1000 }' \
    >"$folder/text.txt"
expect 0 tokenizer train --vocab-size=300 --out="$folder/tokenizer.json" "$folder/text.txt"
cat >"$folder/config.json" <<JSON
{"model": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
  "num_attention_heads": 2, "vocab_size": 300, "dtype": "bf16"},
 "training": {"seq_length": 32, "micro_batch_size": 2, "global_batch_size": 8, "grad_clip": 1.0,
  "total_train_steps": 3},
 "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
 "logging": {"hash_frequency": 1, "measure_peak": false}}
JSON

# hashes RUN: step, loss to 6 digits, and the hash of all parameters after the last step.
hashes() {
    sed -E 's/.*"step":([0-9]+),.*"loss":([0-9.]{7}).*params_hash":"([0-9a-f]+)".*/\1 \2 \3/' \
        "$folder/$1/metrics.jsonl"
}

# same_run RUN RUN: both wrote the same lines.
same_run() {
    if [ -z "$(hashes "$1")" ] || [ "$(hashes "$1")" != "$(hashes "$2")" ]; then
        echo "FAIL: runs $1 and $2 differ:"
        diff <(hashes "$1") <(hashes "$2") | sed 's/^/    /'
        failures=$((failures + 1))
    fi
}

train() { # STATUS RUN OPTIONS...
    local status=$1 run=$2
    shift 2
    expect "$status" train "$folder/config.json" --logging.run_dir="$folder/$run" "$@"
}

train 0 zero0 --distributed.dp_size=2
for stage in 1 2 3; do
    train 0 "zero$stage" --distributed.dp_size=2 --distributed.zero_stage=$stage
done
# Stages 2 and 3 add over ranks before they add over microbatches: other bits, the same training.
same_run zero0 zero1
same_run zero2 zero3
train 0 naive --distributed.dp_size=2 --distributed.dp_reduce=naive
same_run zero0 naive

if ! "$cyclotron" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
    echo "no MPI: processes are not tested"
    finish
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
program=$cyclotron

# mpi RANKS: the program of the following runs is so many ranks of MPI.
mpi() {
    printf '#!/bin/sh\nexec mpirun --oversubscribe -n %s %s "$@"\n' "$1" "$program" >"$folder/mpi"
    chmod +x "$folder/mpi"
    cyclotron=$folder/mpi
}

mpi 2
train 0 mpi0 --distributed.dp_size=2
same_run zero0 mpi0
train 0 mpi3 --distributed.dp_size=2 --distributed.zero_stage=3
same_run zero3 mpi3

# A world that the configuration is not for: said once, before anything is written.
train 2 mismatch --distributed.dp_size=3
says err 'dp_size 3 = 3 ranks, 2 processes were started'
if [ "$(grep -c 'were started' "$folder/err")" != 1 ] || [ -e "$folder/mismatch" ]; then
    echo "FAIL: said more than once, or something was written"
    failures=$((failures + 1))
fi

# The time of day is set while ranks start and later: nothing waits for it.
if [ -n "${FILE_ERRORS:-}" ]; then
    for seconds in 90000 -90000; do
        printf '#!/bin/sh\nexec mpirun --oversubscribe -n 2 env LD_PRELOAD=%s %s "$@"\n' \
            "$FILE_ERRORS" "$program" >"$folder/mpi"
        CY_CLOCK_STEP_S=$seconds CY_CLOCK_MARK=$folder/clock.mark train 0 clock --distributed.dp_size=2 \
            --logging.tensorboard=true
        same_run zero0 clock
        check "ranks whose clock was set" test 2 = "$(grep -c cyclotron "$folder/clock.mark")"
        rm "$folder/clock.mark"
    done
fi
mpi 2

# Data that no rank can read, and a fault of the file: said once as well.
head -c 20 "$folder/text.txt" >"$folder/short.txt"
for fault in --dataset.name="$folder/short.txt" --training.sed=1; do
    train 2 refused --distributed.dp_size=2 "$fault"
    if [ "$(grep -c 'cyclotron: error' "$folder/err")" != 1 ] || [ -e "$folder/refused" ]; then
        echo "FAIL: $fault: said more than once or not at all, or something was written"
        failures=$((failures + 1))
    fi
done

# Ranks as threads in every process: each would do the whole job.
for backend in threads self; do
    train 2 mixed --distributed.dp_size=2 --distributed.backend=$backend
    says err "distributed.backend = \"$backend\": 2 processes were started"
    if [ "$(grep -c 'were started' "$folder/err")" != 1 ] || [ -e "$folder/mixed" ]; then
        echo "FAIL: said more than once, or something was written"
        failures=$((failures + 1))
    fi
done

# Ranks that were given different configurations.
printf '#!/bin/sh\nexec mpirun --oversubscribe -n 1 %s "$@" : -n 1 %s "$@" --training.seed=7\n' \
    "$program" "$program" >"$folder/mpi"
train 2 different --distributed.dp_size=2
says err 'rank 1'
says err 'has another configuration than rank 0'
if [ -e "$folder/different" ]; then
    echo "FAIL: something was written"
    failures=$((failures + 1))
fi

# Ranks whose files differ under the same names, as on machines with disks of their own.
mkdir "$folder/one" "$folder/two"
printf '#!/bin/sh\nexec mpirun --oversubscribe -n 1 -wdir %s %s "$@" : -n 1 -wdir %s %s "$@"\n' \
    "$folder/one" "$program" "$folder/two" "$program" >"$folder/mpi"
# apart STATUS OPTIONS...: such a run of two ranks.
apart() {
    local status=$1
    shift
    train "$status" apart --distributed.dp_size=2 "$@"
}
cp "$folder/text.txt" "$folder/tokenizer.json" "$folder/one"
sed 's/days/ways/' "$folder/text.txt" >"$folder/two/text.txt"
expect_same_files() {
    says err "$1"
    says err 'hint: give every machine the same files'
    if [ -e "$folder/apart" ]; then
        echo "FAIL: something was written"
        failures=$((failures + 1))
    fi
}
apart 2 --dataset.name=text.txt
expect_same_files 'rank 1 reads other tokens than rank 0 in text.txt'
cp "$folder/text.txt" "$folder/two/text.txt"
"$program" tokenizer train --vocab-size=290 --out="$folder/two/tokenizer.json" "$folder/text.txt" \
    >"$folder/log"
apart 2 --dataset.tokenizer=tokenizer.json
expect_same_files 'rank 1 has another tokenizer than rank 0'
cp "$folder/tokenizer.json" "$folder/two"
for seed in 1 2; do
    "$program" train "$folder/config.json" --training.seed=$seed --checkpoint.save_dir="$folder/seed$seed" \
        >"$folder/log" 2>&1
done
cp -r "$folder/seed1" "$folder/one/saves"
further=(--checkpoint.save_dir=saves --checkpoint.resume=auto --training.total_train_steps=4)
apart 2 "${further[@]}"
expect_same_files 'rank 1 finds no checkpoint to start from, of step 0, rank 0 a checkpoint, of step 3'
cp -r "$folder/seed2" "$folder/two/saves"
apart 2 "${further[@]}"
expect_same_files 'rank 1 starts from another checkpoint of step 3 than rank 0'

# A folder of checkpoints that only rank 0 has: the reason is that of the rank that met it.
apart 1 --dataset.name=text.txt --dataset.tokenizer=tokenizer.json --checkpoint.save_dir=mine
says err 'step 3 was not saved: rank 1: create mine/.step-00000003.tmp/weights-00001.safetensors: No such'
check "rank 0 tells what is left" grep -qE \
    '^cyclotron: error: rank 0 .*: the run has ended and step 3 .*; no complete checkpoint is in mine$' "$folder/err"

# Two builds of the program: the copy has another build id, and is the same otherwise.
id=$folder/id
if objcopy --dump-section .note.gnu.build-id="$id" "$program" "$folder/other" 2>"$folder/err"; then
    cp "$id" "$id.other" # a header of 16 bytes, then the digest
    printf '\252\125' | dd of="$id.other" bs=1 seek=16 conv=notrunc status=none
    objcopy --update-section .note.gnu.build-id="$id.other" "$program" "$folder/other"
    printf '#!/bin/sh\nexec mpirun --oversubscribe -n 1 %s "$@" : -n 1 %s "$@"\n' \
        "$program" "$folder/other" >"$folder/mpi"
    train 2 builds --distributed.dp_size=2
    says err 'rank 1'
    says err 'runs build'
    if [ "$(grep -c 'runs build' "$folder/err")" != 1 ] || [ -e "$folder/builds" ]; then
        echo "FAIL: said more than once, or something was written"
        failures=$((failures + 1))
    fi
else
    echo "no objcopy: different builds are not tested"
fi

# What context parallel ranks do beside each other is told.
cyclotron=$program
train 0 zigzag --distributed.cp_size=2 --training.total_train_steps=1
says err 'attention of the busiest rank of cp: 1.00 times the mean'
train 0 contiguous --distributed.cp_size=2 --distributed.cp_layout=contiguous --training.total_train_steps=1
says err 'attention of the busiest rank of cp: 1.48 times the mean'

# A damaged checkpoint: whoever found it says what, whichever rank was first to hear of it.
train 0 whole --training.total_train_steps=2 --checkpoint.save_dir="$folder/damaged" \
    --checkpoint.save_frequency=2
weights=$(echo "$folder"/damaged/step-*/weights-00000.safetensors)
printf 'cyclotron' | dd of="$weights" bs=1 seek=$(($(stat -c %s "$weights") / 2)) conv=notrunc status=none
for ((i = 0; i < 5; i++)); do
    train 1 again --distributed.dp_size=4 --checkpoint.load_path="$folder/damaged"
    check "the rank and what it found" grep -qE \
        'error: rank [0-3] \([^)]*\): .*weights-00000.safetensors: bytes [0-9]+ to [0-9]+' "$folder/err"
done

# A rank does not end the job before what it said is read: the launcher may drop the rest.
cat >"$folder/slow_reader" <<'RANK'
#!/bin/bash
# Runs a program and reads its standard error a while after there is some; then looks for the program.
said=$1.$OMPI_COMM_WORLD_RANK
shift
rank=$$
exec 2> >(
    until read -r -t 0; do sleep 0.01; done
    sleep 0.3
    kill -0 $rank 2>/dev/null && echo "rank $rank waits" >>"$said"
    cat >>"$said"
)
exec "$@"
RANK
chmod +x "$folder/slow_reader"
printf '#!/bin/sh\nexec mpirun --oversubscribe -n 2 %s %s %s "$@"\n' \
    "$folder/slow_reader" "$folder/said" "$program" >"$folder/mpi"
cyclotron=$folder/mpi
train 1 slowly --distributed.dp_size=2 --checkpoint.load_path="$folder/damaged"
cat "$folder"/said.* >"$folder/err"
says err 'weights-00000.safetensors: bytes'
check "the rank waits until it is heard" grep -q 'waits$' "$(grep -l 'cyclotron: error' "$folder"/said.*)"
cyclotron=$program

# Nowhere to save: told by the rank that makes the folder, with its advice.
nowhere() {
    train 1 nowhere --distributed.dp_size="$1" --checkpoint.save_dir="$folder/text.txt/saves"
    check "the rank, its key and its folder" grep -qE \
        "error: rank 0 \\([^)]*\\): checkpoint.save_dir = \"$folder/text.txt/saves\": make folder: Not a" \
        "$folder/err"
    check "what to do, once" test 1 = "$(grep -c '^  hint: give a folder that you may write to$' "$folder/err")"
}
for ((i = 0; i < 5; i++)); do
    nowhere 4
done
mpi 2
nowhere 2
cyclotron=$program

# srun without MPI's wiring: every task would be a world of one.
export SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3
train 2 step --distributed.dp_size=3 --training.global_batch_size=24
says err 'distributed: srun started 3 tasks without the wiring of MPI: each would be alone'
says err 'srun --mpi=pmix, or mpirun'
SLURM_STEP_NUM_TASKS=1 train 0 task --distributed.dp_size=2
PMIX_RANK=0 train 2 step --distributed.dp_size=2
says err 'dp_size 2 = 2 ranks, 3 processes were started'
unset SLURM_STEP_ID
train 0 batch --distributed.dp_size=2 # a batch script is no step
finish
