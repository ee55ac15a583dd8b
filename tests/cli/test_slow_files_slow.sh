#!/usr/bin/env bash
# A disk that takes longer than distributed.timeout_s delays a run and never ends it; one that takes longer
# than checkpoint.timeout_s ends it, and the message says which rank did what with which file.
# tests/preload/slow_files.c makes the fsync of chosen files slow. All runs wait at the same time.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

if [ ! -e "${SLOW_FILES:-}" ]; then
    echo "skipped: sanitizers want to be loaded first"
    exit 77
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=yes
if ! "$cyclotron" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
    echo "no MPI: processes are not tested"
    mpi=no
fi
names=()

# begin NAME SLOW MS RANKS PROCESSES ARGUMENTS...: trains two steps and saves, with slow files; as
# threads of one process for 0 processes.
begin() {
    local name=$1 slow=$2 ms=$3 ranks=$4 processes=$5
    local job=("$cyclotron" train "$folder/tiny.json" --logging.run_dir="$folder/$name"
        --checkpoint.save_dir="$folder/$name/saves" --training.total_train_steps=2
        --training.gradient_accumulation_steps=1 --distributed.dp_size="$ranks"
        --distributed.timeout_s=3)
    shift 5
    if [ "$processes" != 0 ] && [ $mpi = no ]; then return; fi
    if [ "$processes" != 0 ]; then job=(mpirun --oversubscribe -n "$processes" "${job[@]}"); fi
    names+=("$name")
    (
        status=0
        mkdir "$folder/$name.tmp" # mpirun's own: several that begin at once disagree about one
        TMPDIR=$folder/$name.tmp CY_SLOW_NAMES=$slow CY_SLOW_MS=$ms CY_SLOW_MARK=$folder/$name.mark \
            LD_PRELOAD=$SLOW_FILES \
            "${job[@]}" "$@" >"$folder/$name.out" 2>"$folder/$name.err" </dev/null || status=$?
        echo "$status" >"$folder/$name.status"
    ) &
}

# ended NAME STATUS WORDS: how a run ended, that its disk was slow, and what its errors match.
ended() {
    case " ${names[*]} " in *" $1 "*) ;; *) return ;; esac
    check "$1: a slow file" test -s "$folder/$1.mark"
    check "$1: status $(cat "$folder/$1.status"), wanted $2" test "$(cat "$folder/$1.status")" = "$2"
    check "$1: says $3" grep -qE -- "$3" "$folder/$1.err" "$folder/$1.out"
    if [ "$2" != 0 ]; then
        same "$1: errors" 1 "$(grep -c 'cyclotron: error' "$folder/$1.err")"
        check "$1: no checkpoint" test ! -e "$folder/$1/saves/step-00000002"
    else
        check "$1: a whole checkpoint" "$cyclotron" checkpoint verify "$folder/$1/saves/step-00000002" \
            >"$folder/out" 2>&1
        same "$1: steps" 2 "$(grep -c '"loss"' "$folder/$1/metrics.jsonl")"
    fi
    if [ "$failures" != 0 ]; then sed 's/^/    /' "$folder/$1.out" "$folder/$1.err" | tail -20; fi
}

save=weights-00001.safetensors
begin threads $save 6000 2 0
begin threads_start .cyclotron- 6000 2 0 # config.json and manifest.json, by rank 0
begin processes $save 6000 2 2
begin processes_start .cyclotron- 6000 2 2
begin mixed weights-00003.safetensors 6000 4 2
begin mixed_start .cyclotron- 6000 4 2
begin hang $save 60000 2 0 --checkpoint.timeout_s=4
begin hang_processes $save 60000 2 2 --checkpoint.timeout_s=4
begin hang_mixed weights-00003.safetensors 60000 4 2 --checkpoint.timeout_s=4
begin stopped $save 60000 2 2
begin hang_start run/.cyclotron- 60000 2 0 --checkpoint.timeout_s=4 --logging.run_dir="$folder/hang_start/run"
# A process that is stopped at a file has not this file's limit.
if [ $mpi = yes ]; then
    for _ in $(seq 600); do [ -s "$folder/stopped.mark" ] && break; sleep 0.05; done
    pkill -STOP -n -f "cyclotron train .*run_dir=$folder/stopped "
fi
wait

for name in threads threads_start processes processes_start mixed mixed_start; do
    ended $name 0 'saved step 2 in'
done
what='no heartbeat for 4 s \(checkpoint.timeout_s\) from rank 1 \(.*\), syncing weights-00001.safetensors for [0-9]+ s'
ended hang 1 "$what"
ended hang_processes 1 "$what"
ended hang_mixed 1 "${what//1/3}"
ended stopped 1 'no heartbeat for 3 s from rank 1 \(.*\), stopped while syncing weights-00001.safetensors for [0-9]+ s'
ended hang_start 1 'from rank 0 \(.*\), syncing .cyclotron-[0-9a-f]+.tmp for [0-9]+ s'
finish
