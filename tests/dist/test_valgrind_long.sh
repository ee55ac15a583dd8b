#!/usr/bin/env bash
# Training under mpirun with two ranks, each in valgrind: no rank reads what nobody wrote or touches
# what is not its own. What Open MPI and PMIx do at their start and end is their own affair: their
# suppressions, and ours beside this file.
# shellcheck source=tests/cli/lib.sh
. "$SOURCE/tests/cli/lib.sh"
if ! command -v valgrind >/dev/null || ! command -v mpirun >/dev/null ||
    ! "$cyclotron" --version | grep -q '^backends:.* mpi'; then
    echo "skipped: no valgrind, no mpirun or no MPI in this build"
    exit 77
fi
if "$cyclotron" --version | grep -q '^matrix products: onednn'; then
    echo "skipped: code that oneDNN makes reads whole vectors at the end of a matrix;" \
        "scripts/test_long.sh runs this on a build without it"
    exit 77
fi
# shellcheck source=tests/cli/tiny.sh
. "$SOURCE/tests/cli/tiny.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
suppressions=()
for file in /usr/share/openmpi/openmpi-valgrind.supp "$SOURCE/tests/dist/valgrind.supp"; do
    if [ -e "$file" ]; then suppressions+=("--suppressions=$file"); fi
done

# run NAME OPTIONS...: two steps and a save; valgrind's errors end a rank with status 99.
run() {
    local name=$1
    shift
    if ! mpirun --oversubscribe -n 2 valgrind --quiet --error-exitcode=99 \
        "${suppressions[@]}" "$cyclotron" train "$folder/tiny.json" --training.total_train_steps=2 \
        --logging.run_dir="$folder/$name" --checkpoint.save_dir="$folder/$name/saves" \
        --distributed.timeout_s=600 "$@" >"$folder/out" 2>&1; then
        echo "FAIL: $name"
        head -60 "$folder/out"
        failures=$((failures + 1))
    fi
    check "$name saved" test -e "$folder/$name/saves/step-00000002/manifest.json"
}

run zero --distributed.dp_size=2 --distributed.zero_stage=3
run tensor --distributed.tp_size=2 --distributed.sequence_parallel=true
run pipeline --distributed.pp_size=2 --distributed.pp_engine=zero_bubble
finish
