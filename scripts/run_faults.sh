#!/usr/bin/env bash
# What happens to runs: faults of fourteen kinds at random moments, each followed by a resume.
#
#   scripts/run_faults.sh [--seed=S] [--cases=N] [--seconds=S] [--kinds="KIND..."] [--case=N] [--jobs=N]
#                         [--first=N] [--steps=N] [--silence=S] [--keep]
#
# Case N meets a fault of the kind N modulo the number of kinds, on two ranks that are threads or, in every
# second round, processes under mpirun. The run is tests' tiny model for --steps (600), saved twelve times.
# What the run did must be what docs/reliability.md says: no hang (two minutes without a line), the exit
# status and words of that kind, the newest checkpoint whole, and no step lost that the kind leaves a way to
# keep. Then the run resumes, ends, and its weights have the bits of a run that nothing happened to.
#
# A fault that a run does not meet, as a signal that comes after its last step or a failing call that it
# never makes, is counted as not met. --jobs cases run side by side (1). --silence is distributed.timeout_s
# (2): a machine with much else to do takes more. The seed is the date unless --seed gives one; every random
# number is a function of the seed and the number of the case. Prints one line a case and one a kind; the
# status is 1 if a case failed. --keep leaves the folders of failed cases. CYCLOTRON is the program,
# FILE_ERRORS and SLOW_FILES are the libraries of tests/preload; RUN_FAULTS is the folder for everything that
# is written (build/run_faults).
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
jobs=1
steps=600
silence=2
for argument in "$@"; do
    case $argument in
    --seed=*) seed=${argument#*=} ;;
    --cases=*) cases=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} cases=1000000 ;;
    --kinds=*) kinds=${argument#*=} ;;
    --case=*) first=${argument#*=} cases=1 keep=yes ;;
    --first=*) first=${argument#*=} ;; # goes on where an earlier call of the same seed ended
    --jobs=*) jobs=${argument#*=} ;;
    --steps=*) steps=${argument#*=} ;;
    --silence=*) silence=${argument#*=} ;;
    --keep) keep=yes ;;
    *) echo "run_faults: error: unknown option $argument" >&2; exit 2 ;;
    esac
done
for number in "$seed" "$cases" "$seconds" "$first" "$jobs" "$steps" "$silence"; do
    if [[ ! $number =~ ^[0-9]+$ ]]; then
        echo "run_faults: error: $number is no number" >&2
        exit 2
    fi
done
if [ "$jobs" -eq 0 ] || [ $((steps % 12)) -ne 0 ]; then
    echo "run_faults: error: --jobs is at least 1, --steps is divisible by 12" >&2
    exit 2
fi
read -r -a kinds <<<"$kinds"
for kind in "${kinds[@]}"; do
    case " $all " in
    *" $kind "*) ;;
    *) echo "run_faults: error: what is $kind: $all" >&2; exit 2 ;;
    esac
done
each=$((steps / 12))

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

# The run NAME of this case, as words in `command`, with ARGUMENTS.
compose() {
    local name=$1
    shift
    # Under nohup a hang-up would be ignored by what starts here, too.
    local as_usual=(env --default-signal=HUP)
    command=("$program" train "$base/tiny.json" --dataset.name="$files/tokens"
        --dataset.tokenizer="$files/tokenizer.json" --distributed.dp_size=2
        --training.total_train_steps="$steps" --training.lr_decay_steps="$steps"
        --logging.run_dir="$files/run" --checkpoint.save_dir="$files/saves"
        --checkpoint.save_frequency="$each" --checkpoint.keep_last=4
        --distributed.timeout_s="$silence" --checkpoint.resume=auto "$@")
    if [ "$way" = mpi ]; then
        mkdir -p "$case/tmp.$name"
        # mpirun sleeps that long after SIGTERM before it kills, whether or not its ranks have ended.
        as_usual+=(TMPDIR="$case/tmp.$name")
        command=(mpirun --mca odls_base_sigkill_timeout "$grace" --oversubscribe
            -n 2 "${command[@]}")
    fi
    command=("${as_usual[@]}" "${command[@]}")
}

# begin NAME ARGUMENTS...: a run in the background; `job` is its process. PRELOAD is loaded in front of it.
begin() {
    local name=$1 command
    compose "$@"
    # `exec`, so that the signals reach the program.
    (
        [ -z "${PRELOAD:-}" ] || export LD_PRELOAD=$PRELOAD
        exec "${command[@]}" >"$case/$name.out" 2>"$case/$name.err" </dev/null
    ) &
    job=$!
}

# Exports what the library in front reads: the function's own assignments end with it.
begin_failing() {
    marked=yes
    export CY_ERROR_NAME CY_ERROR_CODE CY_ERROR_AFTER CY_ERROR_COUNT CY_ERROR_MARK
    [ -z "${CY_ERROR_READS:-}" ] || export CY_ERROR_READS
    begin fault
}

# The processes of the run that are ranks.
ranks() {
    if [ "$way" = mpi ]; then pgrep -P "$job" -x cyclotron; else echo "$job"; fi
}
# A rank, in `rank`; empty where the run has ended.
draw_rank() {
    local found
    read -r -d '' -a found < <(ranks)
    draw $((${#found[@]} > 0 ? ${#found[@]} : 1))
    rank=${found[$drawn]:-}
}

# over: whether the run has ended. The one in a terminal leaves its status in a file.
over() {
    if [ "$terminal" = yes ]; then [ -s "$case/status" ]; else ! kill -0 "$job" 2>/dev/null; fi
}
# What the run said, and which of its calls were slow.
size_of_output() { cat "$case"/*.out "$case"/*.err "$case/mark" 2>/dev/null | wc -c; }

# ended: waits for the run; `status` is how it ended, 124 for one that said nothing for two minutes.
ended() {
    local waited=0 size=0 before=-1
    until over; do
        sleep 0.1
        waited=$((waited + 1))
        if [ $((waited % 50)) -eq 0 ]; then
            size=$(size_of_output)
            [ "$size" = "$before" ] || waited=0
            before=$size
        fi
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
    if [ "$terminal" = yes ]; then status=$(cat "$case/status"); fi
}

# The last step that a run told of, the last that it wrote of, and the newest that is saved.
told() { grep -aho 'Step: [0-9]*' "$case/$1.out" 2>/dev/null | tail -n 1 | grep -o '[0-9]*'; }
written() { tail -n 1 "$files/run/metrics.jsonl" 2>/dev/null | sed -n 's/^{"step":\([0-9]*\),.*/\1/p'; }
saved() {
    find "$files/saves" -maxdepth 1 -name 'step-*' 2>/dev/null | sed 's/.*step-0*//' | sort -n | tail -n 1
}

# somewhere LEAST: waits until the run is past that step and a random moment more.
somewhere() {
    local step
    until step=$(told fault) && [ "${step:-0}" -ge "$1" ]; do
        if over; then return; fi
        sleep 0.02
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
# says WORDS: whether a line of the run's output does; an extended regular expression.
says() {
    grep -qaE -- "$1" "$case/fault.err" "$case/fault.out"
}
names() {
    says "$1" || bad "does not say: $1"
}
# A run that could not save its last step ends with 1 and says so.
ends_or_is_unsaved() {
    if [ "$status" -eq 1 ] && says 'the run has ended and step [0-9]+ was not saved'; then return; fi
    ends "$@"
}
# A run that ended before its time leaves a checkpoint of its last step.
last_step_saved() {
    local step
    for step in "$(told fault)" "$(written)"; do
        [ "$(saved)" -ge "${step:-0}" ] 2>/dev/null || bad "step $step was done, $(saved) is saved"
    done
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
# A fault that ends a run was met where the run did not end as one that nothing happens to.
met_if_it_ended_the_run() {
    [ "$status" -eq 0 ] || met=yes
}
# Whether a call that cannot go unsaid was made to fail. A lock without its holder's name locks as well; a
# file that cannot be opened past the page cache is opened once more; what removes a retired checkpoint
# finds its folder gone.
failed_aloud() {
    grep -qvE 'lock$|^open .*safetensors$' "$case/mark" 2>/dev/null
}

# ---- the kinds: each runs its fault, says in `met` whether the run met it and what has to come of it

fault_kill() {
    begin fault
    somewhere "$drawn_step"
    draw_rank
    [ -z "$rank" ] || kill -KILL "$rank" 2>/dev/null
    ended
    met_if_it_ended_the_run
    ends 0 137 1
    last_save_there
}
fault_stop() {
    begin fault
    somewhere "$drawn_step"
    draw_rank
    [ -z "$rank" ] || kill -STOP "$rank" 2>/dev/null
    if [ "$way" = mpi ]; then # the other rank gives up, and mpirun ends the stopped one
        ended
        met_if_it_ended_the_run
        [ "$status" -eq 0 ] || names "no heartbeat for $silence s from rank [01]"
        ends 0 1 137
    else # its threads are all of its ranks: it goes on when it may
        sleep $((silence + 1))
        if grep -q '^State:[[:space:]]*T' "/proc/$rank/status" 2>/dev/null; then met=yes; fi
        kill -CONT "$rank" 2>/dev/null
        ended
        ends 0
    fi
    last_save_there
}
# A hang-up of a rank, of the launcher, or of the terminal that both are in (where script(1) makes one).
fault_hup() {
    grace=5
    if command -v script >/dev/null; then draw 3; else draw 2; fi
    if [ "$drawn" -eq 2 ]; then
        begin_in_terminal
        somewhere "$drawn_step"
        kill -KILL "$job" 2>/dev/null
    else
        begin fault
        local to=$drawn
        somewhere "$drawn_step"
        draw_rank
        if [ "$to" -eq 1 ]; then rank=$job; fi
        [ -z "$rank" ] || kill -HUP "$rank" 2>/dev/null
    fi
    ended
    met_if_it_ended_the_run
    # shellcheck disable=SC2046
    ends 0 $(of_ranks 129)
    last_step_saved
}
# The run in a terminal of its own, which goes away when `job` is killed.
begin_in_terminal() {
    local command
    compose fault
    printf '%q ' exec "${command[@]}" >"$case/command"
    # The system tells only the shell, whose terminal it is. As an interactive one it passes the hang-up on,
    # without which a launcher goes on writing into nothing, and outlives it to keep the status.
    cat >"$case/in_terminal" <<TERMINAL
hang_up() { trap : HUP; kill -HUP 0; }
trap hang_up HUP
. $(printf '%q' "$case/command") &
while kill -0 \$! 2>/dev/null; do
    wait \$!
    status=\$?
done
echo \$status >$(printf '%q' "$case/status")
TERMINAL
    terminal=yes
    env --default-signal=HUP script -qf -c "bash '$case/in_terminal'" "$case/fault.out" >"$case/script.log" 2>&1 </dev/null &
    job=$!
    : >"$case/fault.err"
}
# A reader that goes away after some lines.
fault_pipe() {
    local command
    grace=5
    compose fault
    rm -f "$case/fifo" && mkfifo "$case/fifo"
    head -n $((5 + drawn_step / 4)) "$case/fifo" >"$case/fault.out" &
    local reader=$!
    (exec "${command[@]}" >"$case/fifo" 2>"$case/fault.err" </dev/null) &
    job=$!
    ended
    wait "$reader"
    met_if_it_ended_the_run
    # mpirun of Open MPI 4.1 may crash (139) when it meets a second SIGPIPE at its end.
    if [ "$way" = mpi ]; then ends 0 1 139 141; else ends 0 141; fi
    last_step_saved
}
fault_int() {
    grace=5
    begin fault
    somewhere "$drawn_step"
    kill -INT "$job" 2>/dev/null
    ended
    met_if_it_ended_the_run
    # shellcheck disable=SC2046
    ends 0 $(of_ranks 130)
    last_step_saved
}
fault_full_save() {
    draw 60
    PRELOAD=$errors CY_ERROR_NAME=$files/saves CY_ERROR_CODE=28 CY_ERROR_AFTER=$drawn CY_ERROR_COUNT=3 \
        CY_ERROR_MARK=$case/mark begin_failing
    ended
    if [ "$(told fault)" = "" ]; then # the folder itself could not be made or held
        ends 1
        names 'checkpoint.save_dir = .*No space left'
    else
        ends_or_is_unsaved 0
        ! failed_aloud || names '(was not saved|old checkpoints stay|was not saved: rank 1): .*No space left'
    fi
}
fault_full_run() {
    draw 60
    PRELOAD=$errors CY_ERROR_NAME=$files/run CY_ERROR_CODE=28 CY_ERROR_AFTER=$drawn CY_ERROR_COUNT=2 \
        CY_ERROR_MARK=$case/mark begin_failing
    ended
    if [ "$(told fault)" = "" ]; then ends 1; else ends 0; fi
    ! failed_aloud || names 'No space left'
}
fault_io_error() {
    draw 200
    PRELOAD=$errors CY_ERROR_NAME=$files/ CY_ERROR_CODE=5 CY_ERROR_AFTER=$drawn CY_ERROR_COUNT=1 \
        CY_ERROR_READS=yes CY_ERROR_MARK=$case/mark begin_failing
    ended
    ends 0 1 2
    ! failed_aloud || names 'Input/output error'
    [ "$(told fault)" = "" ] || [ "$status" -eq 0 ] || last_save_there 1
}
fault_slow_disk() {
    draw 3
    local names_of=("/weights-" "0.tmp/.cyclotron-" "$(printf 'step-%08d' $((steps / 2)))") # tensors, manifest, all
    marked=yes
    export CY_SLOW_NAMES=${names_of[$drawn]} CY_SLOW_MS=$((silence * 2250)) CY_SLOW_MARK=$case/mark
    PRELOAD=$slow begin fault --checkpoint.save_frequency=$((steps / 2))
    unset CY_SLOW_NAMES CY_SLOW_MS CY_SLOW_MARK
    ended
    ends 0
}
fault_truncated() {
    begin fault
    somewhere "$drawn_step"
    local shard size
    shard=$(find "$files/tokens" -name '*.tokens' | head -n 1)
    size=$(stat -c %s "$shard")
    draw "$size"
    truncate -s "$drawn" "$shard"
    ended
    met_if_it_ended_the_run
    ends 0 1
    [ "$status" -eq 0 ] || { names "$(basename "$shard")"; last_step_saved; }
    rm -rf "$files/tokens" && cp -r "$base/tokens" "$files/tokens"
}
fault_deleted() {
    begin fault
    somewhere "$drawn_step"
    draw 2
    local gone=run
    [ "$drawn" -eq 0 ] || gone=saves
    rm -rf "${files:?}/$gone" 2>"$case/rm.err" # again where the run wrote into it meanwhile
    local step
    step=$(told fault)
    ended
    # A step after that may have been written before the folder was gone.
    if [ "$(told fault)" -gt $((step + 1)) ] 2>/dev/null; then met=yes; fi
    ends_or_is_unsaved 0
    if [ "$met" = yes ] && [ "$gone" = run ]; then
        local name
        for name in metrics.jsonl config.json .run.lock; do
            [ -e "$files/run/$name" ] || bad "no $name again"
        done
    fi
}
fault_tokenizer() {
    begin fault --training.total_train_steps=$((each * 2))
    ended
    ends 0
    cp "$base/other.json" "$files/tokenizer.json"
    begin fault
    ended
    met=yes
    ends 1 2
    names 'tokenizer'
    names 'checkpoint\.[a-z_]+'
    cp "$base/tokenizer.json" "$files/tokenizer.json"
}
fault_two_runs() {
    begin fault
    local one=$job
    somewhere $((drawn_step / 4)) # a second one takes its time to begin
    begin second
    ended
    if kill -0 "$one" 2>/dev/null; then
        met=yes
        ends 1 2
        grep -qE 'another run (saves|writes)' "$case/second.err" || bad "the second run gives no reason"
    fi
    job=$one
    ended
    ends 0
}
fault_clock() {
    draw 200
    local after=$((drawn * 5))
    draw 2
    marked=clock
    export CY_CLOCK_AFTER_MS=$after CY_CLOCK_STEP_S=$((drawn == 0 ? 90000 : -90000)) CY_CLOCK_MARK=$case/mark
    PRELOAD=$errors begin fault --logging.tensorboard=true # whose records have the time of day
    unset CY_CLOCK_AFTER_MS CY_CLOCK_STEP_S CY_CLOCK_MARK
    ended
    if grep -q cyclotron "$case/mark" 2>/dev/null; then met=yes; fi
    ends 0
}

# ---- one case

# What the fault left: a whole newest checkpoint, if there was one, that a resume ends from; no process.
check_what_is_left() {
    local newest tries=0
    terminal=no grace=1
    while pgrep -f "run_dir=$files/run" >"$case/left"; do
        tries=$((tries + 1))
        if [ $tries -gt 100 ]; then
            bad "processes are left"
            xargs -r kill -KILL <"$case/left"
            break
        fi
        sleep 0.1
    done
    newest=$(saved)
    if [ -n "$newest" ]; then
        "$program" checkpoint verify "$(printf '%s/saves/step-%08d' "$files" "$newest")" \
            >"$case/verify.out" 2>&1 || bad "step $newest is not whole"
    fi
    begin resumed
    ended
    [ "$status" -eq 0 ] || bad "the resumed run ended with $status"
    "$program" checkpoint compare --json "$base/files/saves" "$files/saves" >"$case/compare.json" 2>&1
    grep -q '"equal": *true' "$case/compare.json" || bad "other weights than without the fault"
}

# run_case NUMBER: one line with what came of it in $root/results/NUMBER.
run_case() {
    local number=$1 kind=${kinds[$(($1 % ${#kinds[@]}))]} way=threads at ended_with verdict
    if [ $mpi = yes ] && [ $((number / ${#kinds[@]} % 2)) -eq 1 ]; then way=mpi; fi
    at=$(date +%s%N)
    start_case "$number"
    draw $((steps - 2 * each))
    local drawn_step=$drawn problems='' status=0 marked=no met=no terminal=no rank='' grace=1 job
    local case=$root/case-$number
    local files=$case/files
    rm -rf "$case" && mkdir -p "$files"
    cp -r "$base/tokens" "$files/tokens"
    cp "$base/tokenizer.json" "$files/tokenizer.json"
    "fault_$kind" 2>"$case/shell.err"
    # The call that was to fail may be one that the run never made.
    if [ $marked = yes ] && [ -s "$case/mark" ]; then met=yes; fi
    ended_with=$status
    check_what_is_left 2>>"$case/shell.err"
    verdict=ok
    [ $met = yes ] || verdict='not met'
    [ -z "$problems" ] || verdict="FAILED: ${problems#; }"
    printf '%4d %-10s %-7s status %-4s %6d ms  %s\n' "$number" "$kind" "$way" "$ended_with" \
        $((($(date +%s%N) - at) / 1000000)) "$verdict" >"$root/results/$number"
    cat "$root/results/$number"
    if [ -z "$problems" ] || [ $keep = no ]; then rm -rf "$case"; fi
}

# ---- all cases

rm -rf "$root/results" "$root"/case-* && mkdir "$root/results"
began=$SECONDS

# The run that nothing happens to.
way=threads case=$base files=$base/files terminal=no
mkdir "$files" && cp -r "$base/tokens" "$files/tokens" && cp "$base/tokenizer.json" "$files/tokenizer.json"
begin plain
ended
[ "$status" -eq 0 ] || { cat "$base/plain.err"; exit 1; }

for ((number = first; number < first + cases; number++)); do
    if [ "$seconds" -gt 0 ] && [ $((SECONDS - began)) -ge "$seconds" ]; then break; fi
    while [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do wait -n; done
    run_case "$number" &
done
wait

awk -v kinds="${kinds[*]}" -v seed="$seed" -v cases=$((number - first)) '
    { tried[$2]++ }
    / FAILED: / { failed[$2]++; wrong++ }
    / not met$/ { missed[$2]++; unmet++ }
    END {
        count = split(kinds, name, " ")
        for (i = 1; i <= count; i++) {
            printf "%-10s %4d faults met, %d not met, %d failed\n", name[i], tried[name[i]] - missed[name[i]],
                missed[name[i]], failed[name[i]]
        }
        printf "run_faults: seed %s: %d cases, %d faults met, %d not met, %d failed\n", seed, NR, NR - unmet,
            unmet, wrong
        if (NR != cases) printf "run_faults: error: %d cases did not end\n", cases - NR
        exit wrong > 0 || NR != cases
    }' < <(cat "$root"/results/*)
