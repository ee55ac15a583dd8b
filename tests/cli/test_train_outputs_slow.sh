#!/usr/bin/env bash
# cyclotron train: SIGUSR1, outputs that nobody reads, folders that go, and signals to mpirun cost no step.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# start NAME COMMAND...: a run without an end, in the background.
start() {
    local name=$1
    shift
    "$@" train "$folder/tiny.json" --logging.run_dir="$folder/$name" \
        --training.total_train_steps=1000000 --checkpoint.save_dir="$folder/$name/saves" \
        >"$folder/$name.out" 2>"$folder/$name.err" &
    process=$!
    for _ in $(seq 2400); do
        [ "$(grep -sc 'Step:' "$folder/$name.out")" -ge 3 ] 2>"$folder/log" && return
        sleep 0.05
    done
    check "$name: three steps before anything happens to it" false
}
saves() {
    find "$folder/$1/saves" -maxdepth 1 -name 'step-*' 2>/dev/null | wc -l
}

# USR1 saves once however often it comes at once, as from a launcher that passes it on, and goes on.
start usr1 "$cyclotron"
kill -USR1 "$process"
kill -USR1 "$process"
for _ in $(seq 2400); do
    [ "$(saves usr1)" -ge 1 ] && break
    sleep 0.05
done
sleep 0.2
same "saves after two SIGUSR1 at once" 1 "$(saves usr1)"
check "the run goes on" kill -0 "$process"
kill -TERM "$process"
wait "$process"
same "status of a run that SIGTERM ends" 143 $?
same "saves after SIGUSR1 and SIGTERM" 2 "$(saves usr1)"

# Nobody reads the steps: the run goes on, ends well, and says how many lines it dropped.
mkfifo "$folder/fifo"
exec 8<>"$folder/fifo" # open for reading, and never read
"$cyclotron" train "$folder/tiny.json" --training.total_train_steps=4000 \
    --checkpoint.save_dir="$folder/unread/saves" >"$folder/fifo" 2>"$folder/err"
same "status of a run that nobody reads" 0 $?
same "saves of a run that nobody reads" 1 "$(saves unread)"
says err 'standard output was not written fast enough: '
says err 'saved step 4000 in ' # what is read does not wait for what is not

# Nobody reads what the run says of itself: it ends all the same.
for size in 4096 1; do # to the last byte: a write that would wait ends dd
    LC_ALL=C dd if=/dev/zero of="$folder/fifo" bs=$size oflag=nonblock conv=notrunc 2>"$folder/log"
    check "the pipe is full" grep -q 'Resource temporarily unavailable' "$folder/log"
done
timeout -s KILL 240 "$cyclotron" train "$folder/tiny.json" --checkpoint.save_dir="$folder/mute/saves" \
    >"$folder/out" 2>"$folder/fifo"
same "status of a run whose errors nobody reads" 0 $?
same "steps of a run whose errors nobody reads" 8 "$(grep -c 'Step:' "$folder/out")"
same "saves of a run whose errors nobody reads" 1 "$(saves mute)"
exec 8>&-

# Under nohup a hang-up stays ignored.
start nohup nohup "$cyclotron"
kill -HUP "$process"
sleep 0.3
check "the run under nohup goes on" kill -0 "$process"
kill -TERM "$process"
wait "$process"
same "status under nohup" 143 $?

# A folder of metrics that is deleted is made again; one that cannot be is reported once.
# It is stopped meanwhile, or it could make the folder again before a file is in its place.
start deleted "$cyclotron"
kill -STOP "$process"
mv "$folder/deleted" "$folder/moved"
: >"$folder/deleted"
kill -CONT "$process"
for _ in $(seq 2400); do
    grep -q 'cannot be written' "$folder/deleted.err" && break
    sleep 0.05
done
rm "$folder/deleted"
for _ in $(seq 2400); do
    grep -q 'can be written again; no line was lost' "$folder/deleted.err" && break
    sleep 0.05
done
kill -TERM "$process"
wait "$process"
same "status of a run whose folder was deleted" 143 $?
cp "$folder/deleted.err" "$folder/err"
says err 'can be written again; no line was lost'
same "reports of one failure" 1 "$(grep -c 'cannot be written' "$folder/err")"
steps() {
    cat "$folder/moved/metrics.jsonl" "$folder/deleted/metrics.jsonl" | sed -E 's/^\{"step":([0-9]+).*/\1/'
}
same "lines before and after, one a step" "$(seq "$(steps | tail -n 1)")" "$(steps)"
says err "$folder/deleted was deleted or moved away: it is made again"
check "its configuration" cmp "$folder/moved/config.json" "$folder/deleted/config.json"
check "its lock" test -e "$folder/deleted/.run.lock"

# Under mpirun a signal to the launcher or to any rank reaches all of them.
if "$cyclotron" --version | grep -q '^backends:.* mpi' && command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    printf '#!/bin/sh\nexec mpirun --oversubscribe -n 2 %s "$@" --distributed.dp_size=2\n' \
        "$(realpath "$cyclotron")" >"$folder/mpi"
    chmod +x "$folder/mpi"
    for signal in INT TERM USR2; do
        start "mpi_$signal" "$folder/mpi"
        kill -"$signal" "$process"
        wait "$process"
        check "status after SIG$signal to mpirun is not 0" test $? -ne 0
        same "saves after SIG$signal to mpirun" 1 "$(saves "mpi_$signal")"
    done
    start mpi_rank "$folder/mpi"
    rank=$(pgrep -n -P "$process")
    kill -TERM "$rank"
    wait "$process"
    same "status after SIGTERM to rank 1" 143 $?
    same "saves after SIGTERM to rank 1" 1 "$(saves mpi_rank)"
fi

finish
