#!/usr/bin/env bash
# A process of a job that is stopped, or killed, at a moment that nobody chose: the others name it and
# the job ends. FIGURES=FILE, from scripts/bench.sh, gets how long the slowest of them took to end.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

if ! "$cyclotron" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
    echo "no MPI: processes are not tested"
    finish
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# hit SIGNAL SECONDS: sends it to the last of three ranks that train for so long already.
hit() {
    local start job rank
    rm -f "$folder/out" "$folder/err"
    mpirun --oversubscribe -n 3 "$cyclotron" train "$folder/tiny.json" --distributed.dp_size=3 \
        --training.global_batch_size=12 --training.gradient_accumulation_steps=1 \
        --distributed.timeout_s=2 --training.total_train_steps=10000000 \
        >"$folder/out" 2>"$folder/err" </dev/null &
    job=$!
    for ((i = 0; i < 1200; i++)); do
        grep -qs "Step: 3 " "$folder/out" && break
        sleep 0.1
    done
    sleep "$2"
    rank=$(pgrep -P "$job" | tail -n 1)
    start=$SECONDS
    kill -"$1" "$rank"
    for ((i = 0; i < 600; i++)); do
        kill -0 "$job" 2>/dev/null || break
        sleep 0.1
    done
    if kill -0 "$job" 2>/dev/null; then
        echo "FAIL: $1 after $2 s: the job goes on"
        failures=$((failures + 1))
        kill -9 "$rank" "$job"
    fi
    wait "$job"
    status=$?
    took=$((SECONDS - start))
    echo "$1 after $2 s: the job ended after $took s"
    if [ "$took" -gt "$longest" ]; then longest=$took; fi
}

longest=0
for moment in 0 0.013 0.029 0.047 0.071 0.101; do
    hit STOP $moment
    check "the status after $moment s" test "$status" = 1
    says err 'no heartbeat for 2 s from rank '
    check "errors" test "$(grep -c 'cyclotron: error' "$folder/err")" = 1
done
hit KILL 0.05
check "the status of a job whose process was killed" test "$status" != 0
if [ -n "${FIGURES:-}" ]; then echo "faults.job_ends $longest s" >>"$FIGURES"; fi

finish
