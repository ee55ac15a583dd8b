#!/usr/bin/env bash
# One training on many meshes: `make equivalence`. Every mesh trains the same small model on the same
# text with the same global batch; its losses, gradient norms and final weights are held against
# those of one rank.
#
#   scripts/equivalence.sh [--part] [--steps=N] [--dtype="fp64 fp32 bf16"] [--ranks="1 2 4 8 16"]
#                          [--strict] [--share=I/N] [--resume] [--list] [--mesh="TP CP PP DP OPTION..."]...
#
# Without options: every (tp, cp, pp, dp) whose product is 1, 2, 4 or 8 with every ZeRO stage and
# engine that it allows, a sample of 16 ranks, 50 steps in fp32 and in bf16. --part takes a few
# meshes of each kind, for the tests, on shorter sequences; --mesh takes
# this one alone, and may be given again. --strict trains in strict mode, 20 steps in fp32 unless told
# otherwise: losses, gradient norms and the hash of all parameters after each step, and weights and
# moments at the end, must be those of one rank, bit by bit, and so must those of runs that continue
# another mesh's checkpoint. --share takes the I-th of N parts of the list, counted from 0; --resume
# goes on where an earlier call with this folder was stopped: rows that stand in EQUIVALENCE/rows and
# were good are not run again; --list only says what would run. scripts/equivalence_page.sh makes what
# docs/ shows out of the rows.
#
# Prints one line a mesh with the worst difference (relative; of losses in bf16 absolute), writes
# EQUIVALENCE/table.md (build/equivalence), and fails if a mesh is beyond its dtype's bound.
# CYCLOTRON is the program. The learning rate of the fast mode is the default one: with larger ones
# 50 steps of this model are so steep that rounding alone comes out at 4e-5 of the loss in fp32 (at
# 3e-3, dp 2) and at 0.06 in bf16 (at 1e-3).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=mesh_runs.sh
. scripts/mesh_runs.sh

program=${CYCLOTRON:-build/cyclotron}
folder=${EQUIVALENCE:-build/equivalence}
steps=
dtypes=
worlds="1 2 4 8 16"
part=no
strict=false
share=0/1
resume=no
list=no
named=()
for argument in "$@"; do
    case $argument in
    --part) part=yes ;;
    --mesh=*) named+=("${argument#*=}") ;;
    --steps=*) steps=${argument#*=} ;;
    --dtype=*) dtypes=${argument#*=} ;;
    --ranks=*) worlds=${argument#*=} ;;
    --strict) strict=true ;;
    --share=*) share=${argument#*=} ;;
    --resume) resume=yes ;;
    --list) list=yes ;;
    *) echo "equivalence: error: what is $argument" >&2; exit 2 ;;
    esac
done

# Strict mode cuts axes at multiples of its blocks, of 32 tokens at least.
vocabulary=320 width=128 length=64 batch=16 rate=3e-4
if [ "$part" = yes ]; then length=32 batch=8; fi # fp64 has no fast products
if [ $strict = true ]; then
    dtypes=${dtypes:-fp32} steps=${steps:-20}
    width=256 length=256 batch=16 rate=3e-3
fi
dtypes=${dtypes:-fp32 bf16}
steps=${steps:-50}
half=$((steps / 2))

count=0
ran=0
failed=0
total=1
if [ "$share" != 0/1 ]; then
    # The same request without a share says how many there are; its own share is all of them.
    request=(--list --dtype="$dtypes" --ranks="$worlds")
    if [ $strict = true ]; then request+=(--strict); fi
    if [ "$part" = yes ]; then request+=(--part); fi
    total=$(bash scripts/equivalence.sh "${request[@]}" | sed -n 's/^equivalence: \([0-9]*\) .*/\1/p')
fi

# row WHAT COMMAND...: one row of the table, unless it is of another share. WHAT are its first five
# columns; the command prints differences and verdict.
row() {
    local what=$1 key loss norm weights verdict
    shift
    count=$((count + 1))
    if [ "$share" != 0/1 ] && [ $(((count - 1) * ${share#*/} / total)) -ne "${share%/*}" ]; then
        return
    fi
    ran=$((ran + 1))
    if [ "$list" = yes ]; then
        echo "$what"
        return
    fi
    key="$dtype $steps $strict: $what"
    verdict=
    if [ $resume = yes ] && [ -e "$folder/rows" ]; then
        read -r loss norm weights verdict < <(awk -F '\t' -v key="$key" \
            '$1 == key && $2 !~ /OFF|FAILED/ { found = $2 } END { print found }' "$folder/rows") || true
    fi
    if [ -z "$verdict" ]; then
        read -r loss norm weights verdict < <("$@")
        printf '%s\t%s %s %s %s\n' "$key" "$loss" "$norm" "$weights" "$verdict" >>"$folder/rows"
    fi
    case $verdict in
    ok | same | "no MPI here") ;;
    *) failed=$((failed + 1)) ;;
    esac
    printf '%s %-76s loss %s norm %s weights %s  %s\n' "$dtype" "$what" "$loss" "$norm" \
        "$weights" "$verdict"
    awk -v words="$what" -v rest="| $loss | $norm | $weights | $verdict |" 'BEGIN {
        if (split(words, w, " ") >= 8 && w[1] == "tp") {
            options = words
            sub(/^tp [0-9]+ cp [0-9]+ pp [0-9]+ dp [0-9]+ */, "", options)
            print "| " w[2] " | " w[4] " | " w[6] " | " w[8] " | " options " " rest
        } else {
            print "| | | | | " words " " rest
        }
    }' >>"$folder/table.md"
}

# Trains on a mesh and compares. Arguments as of `train`.
try_mesh() {
    rm -rf "$folder/mesh"
    if train mesh "$1" --checkpoint.save_dir="$folder/mesh"; then
        compare mesh "$steps" "$folder/one" "$folder/mesh"
    else
        echo "- - - FAILED: $(why mesh)"
    fi
}

# mesh TP CP PP DP OPTION...
mesh() {
    row "tp $1 cp $2 pp $3 dp $4 ${*:5}" try_mesh "$*"
}

try_processes() {
    if ! "$program" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
        echo "- - - no MPI here"
        return
    fi
    printf '#!/bin/sh\nexec mpirun --oversubscribe -n %s %s "$@"\n' "$1" "$(realpath "$program")" \
        >"$folder/mpi"
    chmod +x "$folder/mpi"
    rm -rf "$folder/mesh"
    if OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 program=$folder/mpi \
        train mesh "$2 backend=mpi" --checkpoint.save_dir="$folder/mesh"; then
        compare mesh "$steps" "$folder/one" "$folder/mesh"
    else
        echo "- - - FAILED: $(why mesh)"
    fi
}

# processes N TP CP PP DP OPTION...: a mesh whose ranks are N processes.
processes() {
    row "tp $2 cp $3 pp $4 dp $5 ${*:6} backend=mpi" try_processes "$1" "${*:2}"
}

try_pair() {
    rm -rf "$folder/saved" "$folder/mesh"
    if train first "$(words_of "$1")" --training.total_train_steps=$half \
        --checkpoint.save_dir="$folder/saved" && cp "$folder/first.numbers" "$folder/both.numbers" &&
        train second "$(words_of "$2")" --checkpoint.load_path="$folder/saved" \
            --checkpoint.save_dir="$folder/mesh"; then
        cat "$folder/second.numbers" >>"$folder/both.numbers"
        compare both "$steps" "$folder/one" "$folder/mesh"
    else
        echo "- - - FAILED: $(why first second)"
    fi
}

# continued FROM TO: the first half of the steps on one mesh of the list, the rest on another from its
# checkpoint.
continued() {
    row "saved by $1, continued by $2" try_pair "$1" "$2"
}

# The ZeRO stages and engines that a mesh allows, each with each. The model has 8 layers, so that a
# pipeline of 8 has no two chunks a rank.
stages_and_engines() {
    local tp=$1 cp=$2 pp=$3 dp=$4 stage engine
    shift 4
    local stages=0 engines=("")
    if [ $((dp * cp)) -gt 1 ]; then stages="0 1 2 3"; fi
    if [ "$pp" -gt 1 ]; then engines=(1f1b afab zero_bubble); fi
    if [ "$pp" -gt 1 ] && [ "$pp" -le 4 ]; then
        engines+=("interleaved pp_chunks=2" "zero_bubble pp_chunks=2")
    fi
    for stage in $stages; do
        for engine in "${engines[@]}"; do
            local words=()
            if [ "$stage" -gt 0 ]; then words+=("zero_stage=$stage"); fi
            if [ -n "$engine" ]; then read -r -a more <<<"pp_engine=$engine"; words+=("${more[@]}"); fi
            mesh "$tp" "$cp" "$pp" "$dp" "$@" ${words[@]+"${words[@]}"}
        done
    done
}

# Everything that a mesh is run with.
variants() {
    local tp=$1 cp=$2
    # Eight ranks with two pieces of a sequence each would cut it finer than strict mode's blocks.
    if [ "$cp" -eq 8 ] && [ $strict = true ]; then set -- "$@" cp_layout=contiguous; fi
    stages_and_engines "$@"
    if [ "$tp" -gt 1 ]; then mesh "$@" sequence_parallel=true; fi
    if [ "$cp" -gt 1 ]; then
        mesh "$@" cp_layout=contiguous
        mesh "$@" cp_style=all_gather
        if [ $((tp * cp)) -le 8 ]; then mesh "$@" cp_style=ulysses; fi
    fi
}

few_strict_meshes() {
    mesh 2 1 1 2 sequence_parallel=true zero_stage=2
    mesh 8 1 1 1
    mesh 1 2 1 1
    mesh 2 4 1 1 cp_style=all_gather
    mesh 1 4 1 2 cp_style=ulysses zero_stage=3
    mesh 1 1 4 1 pp_engine=zero_bubble
    mesh 1 2 2 2 zero_stage=1
    mesh 1 1 1 1 --training.micro_batch_size=4 --distributed.threads_per_rank=2
    processes 4 2 1 1 2 zero_stage=1
    continued tc4 pp2
}

# What strict mode promises besides: other splits of the batch, other threads, other meshes to go
# on. tests/dist/test_resume_strict_long.sh has more pairs.
more_strict() {
    mesh 1 1 1 1 --training.micro_batch_size=4 --distributed.threads_per_rank=2
    mesh 1 1 1 1 --training.micro_batch_size=16 --training.recompute=full
    mesh 2 1 1 2 --training.micro_batch_size=4 --distributed.dp_reduce=naive
    processes 2 1 1 2 1
    processes 4 2 1 1 2 zero_stage=3
    processes 8 2 2 1 2 zero_stage=1
    continued one tc4
    continued tc4 tpd8
    continued tpd8 dp4z3
    continued dp4z3 tp8
    continued cp4u pp2v
    continued tp4 one
}

few_meshes() {
    variants 2 1 1 1
    variants 1 2 1 1
    variants 1 1 2 1
    variants 1 1 1 2
    mesh 2 2 1 2 sequence_parallel=true zero_stage=1
    mesh 2 1 2 2 sequence_parallel=true zero_stage=1
    mesh 1 2 2 2
}

all_meshes() {
    local world tp cp pp dp
    for world in $worlds; do
        if [ "$world" -eq 16 ]; then continue; fi
        for tp in 1 2 4 8; do for cp in 1 2 4 8; do for pp in 1 2 4 8; do for dp in 1 2 4 8; do
            if [ $((tp * cp * pp * dp)) -eq "$world" ]; then variants "$tp" "$cp" "$pp" "$dp"; fi
        done; done; done; done
    done
    case " $worlds " in
    *" 16 "*)
        stages_and_engines 2 2 2 2 sequence_parallel=true
        mesh 2 2 2 2 cp_style=ulysses zero_stage=1
        mesh 4 2 2 1 sequence_parallel=true pp_engine=zero_bubble
        mesh 2 4 1 2 cp_style=all_gather zero_stage=3
        mesh 2 1 4 2 pp_engine=interleaved pp_chunks=2 zero_stage=1
        mesh 1 2 2 4 zero_stage=2 pp_engine=afab
        mesh 1 1 4 4 pp_engine=zero_bubble pp_chunks=2 zero_stage=3
        mesh 8 1 1 2 sequence_parallel=true
        mesh 1 8 2 1 cp_layout=contiguous
        mesh 1 4 1 4 zero_stage=3
        mesh 1 1 1 16 zero_stage=3
        mesh 2 1 8 1 pp_engine=1f1b
        ;;
    esac
}

declare -A strict_words=([true]=", strict" [false]="")
mkdir -p "$folder"
: >"$folder/table.md"
if [ "$list" = no ]; then
    make_data
    make_config "$steps" "\"hidden_size\": 64, \"intermediate_size\": $width, \"vocab_size\": $vocabulary" \
        "\"seq_length\": $length, \"global_batch_size\": $batch, \"learning_rate\": $rate"
fi
for dtype in $dtypes; do
    bounds_of "$dtype" >/dev/null
    if [ "$list" = no ]; then
        rm -rf "$folder/one"
        train one "1 1 1 1" --checkpoint.save_dir="$folder/one" || { why one >&2; exit 1; }
    fi
    {
        printf '\n## %s, %d steps%s\n\n' "$dtype" "$steps" "${strict_words[$strict]}"
        printf '| tp | cp | pp | dp | options | loss | gradient norm | weights | |\n'
        printf '|---|---|---|---|---|---|---|---|---|\n'
    } >>"$folder/table.md"
    if [ ${#named[@]} -gt 0 ]; then
        for one in "${named[@]}"; do
            read -r -a one <<<"$one"
            mesh "${one[@]}"
        done
    elif [ "$part" = no ]; then
        all_meshes
        if [ $strict = true ]; then more_strict; fi
    elif [ $strict = true ]; then
        few_strict_meshes
    else
        few_meshes
    fi
done
if [ "$list" = no ]; then
    echo "equivalence: $ran meshes over $steps steps in $dtypes, $failed beyond the bounds"
else
    echo "equivalence: $ran meshes"
fi
[ "$failed" -eq 0 ]
