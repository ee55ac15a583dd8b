#!/usr/bin/env bash
# What happens to runs: faults of fourteen kinds at random moments, each followed by a resume.
#
#   scripts/run_faults.sh [--seed=S] [--cases=N] [--seconds=S] [--kinds="KIND..."] [--case=N] [--keep]
#
# Case N meets a fault of the kind N modulo the number of kinds, on two ranks that are threads or, in every
# second round, processes under mpirun. The run is tests' tiny model for 600 steps, saved each 50. What the
# run did must be what docs/reliability.md says: no hang (a minute), the exit status and words of that kind, the
# newest checkpoint whole, and no step lost that the kind leaves a way to keep. Then the run resumes, ends,
# and its weights have the bits of a run that nothing happened to.
#
# The seed is the date unless --seed gives one; every random number is a function of the seed and the
# number of the case. Prints one line a case and one a kind; the status is 1 if a case failed. --keep leaves
# the folders of failed cases. CYCLOTRON is the program, FILE_ERRORS and SLOW_FILES are the libraries of
# tests/preload; RUN_FAULTS is the folder for everything that is written (build/run_faults).
set -uo pipefail
cd "$(dirname "$0")/.." || exit

program=$(realpath "${CYCLOTRON:-build/cyclotron}")
root=${RUN_FAULTS:-build/run_faults}
errors=$(realpath "${FILE_ERRORS:-build/tests/libcy_file_errors.so}")
slow=$(realpath "${SLOW_FILES:-build/tests/libcy_slow_files.so}")
all="kill stop hup pipe int full_save full_run io_error slow_disk truncated deleted tokenizer two_runs clock"
kinds=$all
seed=$(date +%Y%m%d)
cases=28
seconds=0
first=0
keep=no
for argument in "$@"; do
    case $argument in
    --seed=*) seed=${argument#*=} ;;
    --cases=*) cases=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} cases=1000000 ;;
    --kinds=*) kinds=${argument#*=} ;;
    --case=*) first=${argument#*=} cases=1 keep=yes ;;
    --keep) keep=yes ;;
    *) echo "run_faults: error: unknown option $argument" >&2; exit 2 ;;
    esac
done
read -r -a kinds <<<"$kinds"
for kind in "${kinds[@]}"; do
    case " $all " in
    *" $kind "*) ;;
    *) echo "run_faults: error: what is $kind: $all" >&2; exit 2 ;;
    esac
done
steps=600
each=50

mkdir -p "$root"
root=$(realpath "$root")
base=$root/base
rm -rf "$base" && mkdir -p "$base"
# The tiny model, its text and its tokenizer, as the tests have them.
(
    trap - EXIT
    export folder=$base cyclotron=$program
    # shellcheck source=tests/cli/tiny.sh disable=SC1091
    . tests/cli/tiny.sh
) || exit 1
"$program" data prepare --tokenizer="$base/tokenizer.json" --out="$base/tokens" "$base/text.txt" \
    >"$base/log" 2>&1 || { cat "$base/log"; exit 1; }
head -n 2500 "$base/text.txt" >"$base/other.txt"
"$program" tokenizer train --vocab-size=310 --out="$base/other.json" "$base/other.txt" >"$base/log"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=no
if "$program" --version | grep -q '^backends:.* mpi' && command -v mpirun >/dev/null; then mpi=yes; fi

# ---- random numbers: a linear congruential generator of 48 bits, the constants of POSIX's drand48

state=0
start_case() {
    state=$((((seed * 1000003 + $1) * 25214903917 + 11) & 0xffffffffffff))
    draw 1
    draw 1
}
# draw N: sets `drawn` to a number from 0 to N - 1.
draw() {
    state=$(((state * 25214903917 + 11) & 0xffffffffffff))
    drawn=$(((state >> 17) % $1))
}

# ---- one run

# begin NAME ARGUMENTS...: a run in the background: `job` is what to wait for, `launched` gets signals.
# PRELOAD is loaded in front of it.
begin() {
    local name=$1 command=("$program")
    shift
    if [ "$way" = mpi ]; then
        mkdir -p "$case/tmp.$name"
        command=(mpirun --oversubscribe -n 2 "$program")
    fi
    # `exec`, so that the signals reach the program.
    (
        export TMPDIR=$case/tmp.$name
        [ -d "$TMPDIR" ] || unset TMPDIR
        [ -z "${PRELOAD:-}" ] || export LD_PRELOAD=$PRELOAD
        exec "${command[@]}" train "$base/tiny.json" --dataset.name="$case/tokens" \
            --dataset.tokenizer="$case/tokenizer.json" --distributed.dp_size=2 \
            --training.total_train_steps=$steps --training.lr_decay_steps=$steps \
            --logging.run_dir="$case/run" --checkpoint.save_dir="$case/saves" \
            --checkpoint.save_frequency=$each --checkpoint.keep_last=4 --distributed.timeout_s=2 \
            --checkpoint.resume=auto "$@" >"$case/$name.out" 2>"$case/$name.err" </dev/null
    ) &
    job=$!
}

# ranks: the processes of the run that are ranks.
ranks() {
    if [ "$way" = mpi ]; then pgrep -P "$job" -x cyclotron; else echo "$job"; fi
}

# ended: waits a minute for the run; `status` is how it ended, 124 for one that did not.
ended() {
    local waited=0
    while kill -0 "$job" 2>/dev/null; do
        sleep 0.05
        waited=$((waited + 1))
        if [ $waited -gt 1200 ]; then
            ranks | xargs -r kill -CONT
            ranks | xargs -r kill -KILL
            kill -KILL "$job"
            wait "$job" 2>/dev/null
            status=124
            return
        fi
    done
    wait "$job" 2>/dev/null
    status=$?
}

# The last step that a run told of, and the newest that is saved.
told() { grep -ho 'Step: [0-9]*' "$case/$1.out" 2>/dev/null | tail -n 1 | grep -o '[0-9]*'; }
saved() {
    find "$case/saves" -maxdepth 1 -name 'step-*' 2>/dev/null | sed 's/.*step-0*//' | sort -n | tail -n 1
}

# somewhere LEAST: waits until the run is past that step and a random moment more.
somewhere() {
    local wanted=$1 tries=0
    while [ "$(told fault || true)" = "" ] || [ "$(told fault)" -lt "$wanted" ]; do
        kill -0 "$job" 2>/dev/null || return 0
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || return 0
        sleep 0.01
    done
    draw 150
    sleep "$(printf '0.%03d' "$drawn")"
}

# bad WORDS: what the case did wrong.
bad() {
    problems="$problems; $*"
}
# ends STATUS...: with one of these.
ends() {
    case " $* " in
    *" $status "*) ;;
    *) bad "status $status, wanted $*" ;;
    esac
}
# names WORDS: a line of the run's output says so; an extended regular expression.
names() {
    grep -qE -- "$1" "$case/fault.err" "$case/fault.out" || bad "does not say: $1"
}
# A run that ended before its time leaves a checkpoint of its last step.
last_step_saved() {
    [ "$(saved)" -ge "$(told fault || echo 0)" ] || bad "step $(told fault) was done, $(saved) is saved"
}
# Or one of at most save_frequency steps ago.
last_save_there() {
    local done_steps
    done_steps=$(told fault || true)
    # The save of a step may still have been under way when it was told of.
    [ "$(saved || echo 0)" -ge $(((${done_steps:-0} - 1) / each * each - each * ${1:-0})) ] 2>/dev/null ||
        [ "${done_steps:-0}" -le $each ] || bad "step $done_steps was done, $(saved) is saved"
}
# Under mpirun a launcher's own status stands for that of the ranks.
of_ranks() {
    if [ "$way" = mpi ]; then echo "$1 1"; else echo "$1"; fi
}

# ---- the kinds: each runs its fault and says what has to come of it

fault_kill() {
    begin fault
    somewhere $((drawn_step))
    ranks | shuf -n 1 --random-source=<(yes "$state") | xargs -r kill -KILL
    ended
    ends 0 137 1
    last_save_there
}
fault_stop() {
    begin fault
    somewhere $((drawn_step))
    local pid
    pid=$(ranks | shuf -n 1 --random-source=<(yes "$state"))
    [ -n "$pid" ] && kill -STOP "$pid" 2>/dev/null
    if [ "$way" = mpi ]; then # the other rank gives up, and mpirun ends the stopped one
        local tries=0
        while kill -0 "$job" 2>/dev/null && [ $tries -lt 800 ]; do sleep 0.05; tries=$((tries + 1)); done
        ended
        [ "$status" -eq 0 ] || names 'no heartbeat for 2 s|rank'
        ends 0 1 137
    else # its threads are all of its ranks: it goes on when it may
        sleep 3
        kill -CONT "$pid" 2>/dev/null
        ended
        ends 0
    fi
    last_save_there
}
fault_hup() {
    begin fault
    somewhere $((drawn_step))
    ranks | shuf -n 1 --random-source=<(yes "$state") | xargs -r kill -HUP
    ended
    # shellcheck disable=SC2046
    ends 0 $(of_ranks 129)
    last_step_saved
}
fault_pipe() {
    way=threads # mpirun reads its ranks' output itself
    rm -f "$case/fifo" && mkfifo "$case/fifo"
    head -n $((5 + drawn_step / 4)) "$case/fifo" >"$case/read.out" &
    local reader=$!
    (
        exec "$program" train "$base/tiny.json" --dataset.name="$case/tokens" \
            --dataset.tokenizer="$case/tokenizer.json" --distributed.dp_size=2 \
            --training.total_train_steps=$steps --training.lr_decay_steps=$steps \
            --logging.run_dir="$case/run" --checkpoint.save_dir="$case/saves" \
            --checkpoint.save_frequency=$each --checkpoint.keep_last=4 \
            >"$case/fifo" 2>"$case/fault.err" </dev/null
    ) &
    job=$!
    ended
    wait "$reader"
    cp "$case/read.out" "$case/fault.out"
    ends 0 141
    last_step_saved
}
fault_int() {
    begin fault
    somewhere $((drawn_step))
    kill -INT "$job" 2>/dev/null
    ended
    # shellcheck disable=SC2046
    ends 0 $(of_ranks 130)
    last_step_saved
}
fault_full_save() {
    draw 40
    PRELOAD=$errors CY_ERROR_NAME=$case/saves CY_ERROR_CODE=28 CY_ERROR_AFTER=$drawn CY_ERROR_COUNT=3 \
        CY_ERROR_MARK=$case/mark begin_failing
    ended
    ends 0
    [ ! -s "$case/mark" ] || names 'was not saved: .*No space left'
}
fault_full_run() {
    draw 60
    PRELOAD=$errors CY_ERROR_NAME=$case/run CY_ERROR_CODE=28 CY_ERROR_AFTER=$drawn CY_ERROR_COUNT=2 \
        CY_ERROR_MARK=$case/mark begin_failing
    ended
    if [ -s "$case/mark" ] && grep -qv metrics "$case/mark"; then # config.json, before the first step
        ends 0 1
    else
        ends 0
    fi
    [ ! -s "$case/mark" ] || names 'No space left'
}
fault_io_error() {
    draw 120
    PRELOAD=$errors CY_ERROR_NAME=$case/ CY_ERROR_CODE=5 CY_ERROR_AFTER=$drawn CY_ERROR_COUNT=1 \
        CY_ERROR_READS=yes CY_ERROR_MARK=$case/mark begin_failing
    ended
    ends 0 1 2
    # A lock without its holder's name locks as well.
    [ ! -s "$case/mark" ] || grep -q 'lock$' "$case/mark" || names 'Input/output error'
    [ "$(told fault || echo 0)" = "" ] || [ "$status" -eq 0 ] || last_save_there 1
}
# Exports what the library in front reads: the function's own assignments end with it.
begin_failing() {
    marked=yes
    export CY_ERROR_NAME CY_ERROR_CODE CY_ERROR_AFTER CY_ERROR_COUNT CY_ERROR_MARK
    [ -z "${CY_ERROR_READS:-}" ] || export CY_ERROR_READS
    begin fault
}
fault_slow_disk() {
    draw 3
    local names_of=("weights-" "manifest" "step-00000300")
    marked=yes
    export CY_SLOW_NAMES=${names_of[$drawn]} CY_SLOW_MS=4500 CY_SLOW_MARK=$case/mark
    PRELOAD=$slow begin fault --checkpoint.save_frequency=300
    unset CY_SLOW_NAMES CY_SLOW_MS CY_SLOW_MARK
    ended
    ends 0
}
fault_truncated() {
    begin fault
    somewhere $((drawn_step))
    local shard size
    shard=$(find "$case/tokens" -name '*.cyt' -o -name '*.bin' -o -name '*-0*' -type f | head -n 1)
    size=$(stat -c %s "$shard")
    draw "$size"
    truncate -s "$drawn" "$shard"
    ended
    ends 0 1
    [ "$status" -eq 0 ] || { names "$(basename "$shard")"; last_step_saved; }
    rm -rf "$case/tokens" && cp -r "$base/tokens" "$case/tokens"
}
fault_deleted() {
    begin fault
    somewhere $((drawn_step))
    draw 2
    if [ "$drawn" -eq 0 ]; then
        rm -rf "$case/run" # again where the run wrote into it meanwhile
        ended
        ends 0
        [ -s "$case/run/metrics.jsonl" ] || [ "$(told fault)" = $steps ] || bad "no metrics.jsonl again"
    else
        rm -rf "$case/saves"
        ended
        ends 0
    fi
}
fault_tokenizer() {
    begin fault --training.total_train_steps=$((each * 2))
    ended
    ends 0
    cp "$base/other.json" "$case/tokenizer.json"
    cp "$case/fault.out" "$case/before.out"
    begin fault
    ended
    ends 1 2
    names 'tokenizer'
    names 'checkpoint\.[a-z_]+'
    cp "$base/tokenizer.json" "$case/tokenizer.json"
}
fault_two_runs() {
    begin fault
    local one=$job
    somewhere $((drawn_step))
    begin second
    ended
    if [ "$(grep -c '' "$case/second.err")" -eq 0 ] || kill -0 "$one" 2>/dev/null; then
        ends 1 2
        [ "$status" -eq 0 ] || grep -qE 'run|use|lock' "$case/second.err" || bad "the second run gives no reason"
    fi
    job=$one
    ended
    ends 0
}
fault_clock() {
    draw 200
    local after=$((drawn * 5))
    draw 2
    export CY_CLOCK_AFTER_MS=$after CY_CLOCK_STEP_S=$((drawn == 0 ? 90000 : -90000))
    PRELOAD=$errors begin fault
    unset CY_CLOCK_AFTER_MS CY_CLOCK_STEP_S
    ended
    ends 0
}

# ---- all cases

declare -A tried failed none
total=0 wrong=0
began=$SECONDS

# The run that nothing happens to.
way=threads case=$base problems=
begin plain
ended
[ "$status" -eq 0 ] || { cat "$base/plain.err"; exit 1; }

for ((number = first; number < first + cases; number++)); do
    if [ "$seconds" -gt 0 ] && [ $((SECONDS - began)) -ge "$seconds" ]; then break; fi
    kind=${kinds[$((number % ${#kinds[@]}))]}
    way=threads
    if [ $mpi = yes ] && [ $((number / ${#kinds[@]} % 2)) -eq 1 ]; then way=mpi; fi
    start_case "$number"
    draw $((steps - 2 * each))
    drawn_step=$drawn problems='' status=0 marked=no
    case=$root/case
    rm -rf "$case" && mkdir "$case"
    cp -r "$base/tokens" "$case/tokens"
    cp "$base/tokenizer.json" "$case/tokenizer.json"
    at=$(date +%s%N)
    (
        "fault_$kind"
        # What the fault left: a whole newest checkpoint, if there was one, that a resume ends from.
        newest=$(saved)
        if [ -n "$newest" ]; then
            "$program" checkpoint verify "$(printf '%s/saves/step-%08d' "$case" "$newest")" \
                >"$case/verify.out" 2>&1 || bad "step $newest is not whole"
        fi
        fault_status=$status
        # The call that was to fail may be one that the run never made.
        if [ $marked = yes ] && [ ! -s "$case/mark" ]; then fault_status=none; fi
        begin resumed
        ended
        [ "$status" -eq 0 ] || bad "the resumed run ended with $status"
        "$program" checkpoint compare --json "$base/saves" "$case/saves" >"$case/compare.json" 2>&1
        grep -q '"equal": *true' "$case/compare.json" || bad "other weights than without the fault"
        printf '%s\n%s\n' "$fault_status" "$problems" >"$case/result"
    ) 2>"$case/shell.err"
    { read -r ended_with; read -r problems; } <"$case/result" || problems='; the case did not end'
    tried[$kind]=$((${tried[$kind]:-0} + 1))
    total=$((total + 1))
    verdict=ok
    if [ "$ended_with" = none ]; then none[$kind]=$((${none[$kind]:-0} + 1)); fi
    if [ -n "$problems" ]; then
        verdict="FAILED: ${problems#; }"
        failed[$kind]=$((${failed[$kind]:-0} + 1))
        wrong=$((wrong + 1))
        if [ $keep = yes ]; then rm -rf "$root/failed-$number" && cp -r "$case" "$root/failed-$number"; fi
    fi
    printf '%4d %-10s %-7s status %-4s %5d ms  %s\n' "$number" "$kind" "$way" "${ended_with:-?}" \
        $((($(date +%s%N) - at) / 1000000)) "$verdict"
done

for kind in "${kinds[@]}"; do
    printf '%-10s %4d faults, %d failed\n' "$kind" $((${tried[$kind]:-0} - ${none[$kind]:-0})) \
        "${failed[$kind]:-0}"
done
echo "run_faults: seed $seed: $total faults, $wrong failed"
[ "$wrong" -eq 0 ]
