#!/usr/bin/env bash
# One training on many meshes: `make equivalence`. Every mesh trains the same small model on the same
# text with the same global batch; its losses and gradient norms are held against those of one rank.
#
#   scripts/equivalence.sh [--part] [--steps=N] [--dtype="fp64 fp32 bf16"] [--ranks="1 2 4 8 16"]
#                          [--strict] [--share=I/N] [--list] [--page=FILE]
#
# Without options: every (tp, cp, pp, dp) whose product is 1, 2, 4 or 8 with every ZeRO stage and
# engine that it allows, a sample of 16 ranks, 50 steps in fp32 and in bf16. --part takes a few
# meshes of each kind, for the tests. --strict trains in strict mode, 20 steps in fp32 unless told
# otherwise: losses, gradient norms and the hash of all parameters after each step must be those of
# one rank, digit by digit, and so must those of runs that continue another mesh's checkpoint.
# --share takes the I-th of N parts of the list, counted from 0; --list only says what would run;
# --page writes what docs/ shows.
#
# Prints one line a mesh with the worst difference (relative; of losses in bf16 absolute), writes
# EQUIVALENCE/table.md (build/equivalence), and fails if a mesh is beyond its dtype's bound.
# CYCLOTRON is the program. The learning rate of the fast mode is the default one: with larger ones
# 50 steps of this model are so steep that rounding alone comes out at 4e-5 of the loss in fp32 (at
# 3e-3, dp 2) and at 0.06 in bf16 (at 1e-3).
set -euo pipefail
cd "$(dirname "$0")/.."

program=${CYCLOTRON:-build/cyclotron}
folder=${EQUIVALENCE:-build/equivalence}
steps=
dtypes=
worlds="1 2 4 8 16"
part=no
strict=false
share=0/1
list=no
page=
for argument in "$@"; do
    case $argument in
    --part) part=yes ;;
    --steps=*) steps=${argument#*=} ;;
    --dtype=*) dtypes=${argument#*=} ;;
    --ranks=*) worlds=${argument#*=} ;;
    --strict) strict=true ;;
    --share=*) share=${argument#*=} ;;
    --list) list=yes ;;
    --page=*) page=${argument#*=} ;;
    *) echo "equivalence: error: what is $argument" >&2; exit 2 ;;
    esac
done

# Strict mode cuts axes at multiples of its blocks, of 32 tokens at least.
vocabulary=320 width=128 length=64 rate=3e-4
if [ $strict = true ]; then
    dtypes=${dtypes:-fp32} steps=${steps:-20}
    vocabulary=512 width=256 length=256 rate=3e-3
fi
dtypes=${dtypes:-fp32 bf16}
steps=${steps:-50}

# bounds_of DTYPE: the bounds on losses and on gradient norms.
bounds_of() {
    case $1 in
    fp64) echo 1e-10 1e-9 ;;
    fp32) echo 1e-5 1e-4 ;;
    bf16) echo 1e-2 2e-2 ;;
    *) echo "equivalence: error: dtype $1: fp64, fp32 or bf16" >&2; exit 2 ;;
    esac
}

mkdir -p "$folder"
awk 'BEGIN {
    split("the a one ring of ranks that sums its parts in order and gives each rank all of them", w, " ")
    state = 1
    for (line = 0; line < 6000; line++) {
        for (i = 0; i < 12; i++) {
            state = (state * 16807) % 2147483647
            printf "%s ", w[1 + state % 18]
        }
        print state % 97
    }
}' >"$folder/text.txt"
"$program" tokenizer train --vocab-size=320 --out="$folder/tokenizer.json" "$folder/text.txt" >/dev/null
cat >"$folder/config.json" <<END
{
    "model": {"num_hidden_layers": 8, "hidden_size": 64, "intermediate_size": $width,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": $vocabulary,
        "tie_word_embeddings": true},
    "training": {"seq_length": $length, "micro_batch_size": 1, "global_batch_size": 16,
        "total_train_steps": $steps, "learning_rate": $rate, "grad_clip": 1.0, "weight_decay": 0.1,
        "strict": $strict},
    "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
    "distributed": {"threads_per_rank": 1},
    "logging": {"hash_frequency": 1}
}
END

# run NAME OPTION...: leaves loss, norm and hash of each step in NAME.numbers.
run() {
    local name=$1
    shift
    rm -rf "$folder/run"
    "$program" train "$folder/config.json" --logging.run_dir="$folder/run" \
        --model.dtype="$dtype" "$@" >"$folder/$name.log" 2>&1 || return 1
    sed -n 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*"params_hash":"\([0-9a-f]*\)".*/\1 \2 \3/p' \
        "$folder/run/metrics.jsonl" >"$folder/$name.numbers"
    [ -s "$folder/$name.numbers" ]
}

# compare NAME BOUND NORM_BOUND: the largest differences of NAME's losses and norms from those of
# one rank, then ok, OFF, or same where every bit is.
compare() {
    paste "$folder/one.numbers" "$folder/$1.numbers" |
        awk -v bound="$2" -v norm_bound="$3" -v dtype="$dtype" -v strict="$strict" \
            -v steps="$steps" '
        function off(a, b) { return a > b ? a - b : b - a }
        {
            loss = off($1, $4) / (dtype == "bf16" ? 1 : $1)
            if (!(loss <= worst)) worst = loss
            if (!(off($2, $5) / $2 <= norm)) norm = off($2, $5) / $2
            if ($1 != $4 || $2 != $5 || $3 != $6) differ = 1
            count++
        }
        END {
            verdict = count != steps ? "OFF: " count " steps" : !differ ? "same" : strict == "true" ? "OFF" : \
                worst <= bound && norm <= norm_bound ? "ok" : "OFF"
            printf "%.1e %.1e %s", worst, norm, verdict
        }'
}

count=0
ran=0
failed=0
total=1
if [ "$share" != 0/1 ]; then
    # The same request without a share says how many there are; its own share is all of them.
    words=(--list --dtype="$dtypes" --ranks="$worlds")
    if [ $strict = true ]; then words+=(--strict); fi
    if [ "$part" = yes ]; then words+=(--part); fi
    total=$(bash scripts/equivalence.sh "${words[@]}" | sed -n 's/^equivalence: \([0-9]*\) .*/\1/p')
fi

# mesh TP CP PP DP OPTION...
mesh() {
    local tp=$1 cp=$2 pp=$3 dp=$4
    shift 4
    local words=() options=() result option
    for option in "$@"; do
        words+=("$option")
        case $option in
        --*) options+=("$option") ;; # of another section
        *) options+=("--distributed.$option") ;;
        esac
    done
    count=$((count + 1))
    if [ "$share" != 0/1 ] && [ $(((count - 1) * ${share#*/} / total)) -ne "${share%/*}" ]; then
        return
    fi
    ran=$((ran + 1))
    if [ "$list" = yes ]; then
        echo "tp $tp cp $cp pp $pp dp $dp  ${words[*]:-}"
        return
    fi
    if run mesh --distributed.tp_size="$tp" --distributed.cp_size="$cp" \
        --distributed.pp_size="$pp" --distributed.dp_size="$dp" ${options[@]+"${options[@]}"}; then
        result=$(compare mesh "$bound" "$norm_bound")
    else
        result="- - FAILED: $(grep -m 1 error "$folder/mesh.log" || tail -n 1 "$folder/mesh.log")"
    fi
    local loss norm verdict
    read -r loss norm verdict <<<"$result"
    case $verdict in
    ok | same) ;;
    *) failed=$((failed + 1)) ;;
    esac
    printf '%s tp %d cp %d pp %d dp %d  %-48s loss %s norm %s  %s\n' "$dtype" "$tp" "$cp" "$pp" \
        "$dp" "${words[*]:-}" "$loss" "$norm" "$verdict"
    printf '| %d | %d | %d | %d | %s | %s | %s | %s |\n' "$tp" "$cp" "$pp" "$dp" "${words[*]:-}" \
        "$loss" "$norm" "$verdict" >>"$folder/table.md"
}

# processes N TP CP PP DP OPTION...: a mesh whose ranks are N processes, where there is MPI.
processes() {
    local ranks=$1 threads=$program
    shift
    if ! "$program" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
        echo "no MPI: processes are not tried"
        return 0
    fi
    printf '#!/bin/sh\nexec mpirun --oversubscribe -n %s %s "$@"\n' "$ranks" "$(realpath "$program")" \
        >"$folder/mpi"
    chmod +x "$folder/mpi"
    program=$folder/mpi
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mesh "$@" backend=mpi
    program=$threads
}

# continued "WRITER OPTIONS" "READER OPTIONS": the first half of the steps on one mesh, the rest on
# another from its checkpoint, against one rank without a stop.
continued() {
    local half=$((steps / 2)) option writer=() reader=() loss=- norm=- verdict
    for option in $1; do writer+=("--distributed.$option"); done
    for option in $2; do reader+=("--distributed.$option"); done
    count=$((count + 1))
    if [ "$share" != 0/1 ] && [ $(((count - 1) * ${share#*/} / total)) -ne "${share%/*}" ]; then
        return
    fi
    ran=$((ran + 1))
    if [ "$list" = yes ]; then
        echo "saved by [$1], continued by [$2]"
        return
    fi
    rm -rf "$folder/saved"
    if run first --training.total_train_steps=$half --checkpoint.save_dir="$folder/saved" \
        ${writer[@]+"${writer[@]}"} && cp "$folder/first.numbers" "$folder/halves.numbers" &&
        run second --checkpoint.load_path="$folder/saved" ${reader[@]+"${reader[@]}"}; then
        cat "$folder/second.numbers" >>"$folder/halves.numbers"
        read -r loss norm verdict < <(compare halves "$bound" "$norm_bound"; echo)
    else
        verdict="FAILED: $(grep -h -m 1 error "$folder/first.log" "$folder/second.log" || true)"
    fi
    case $verdict in
    ok | same) ;;
    *) failed=$((failed + 1)) ;;
    esac
    printf '%s saved by [%s], continued by [%s]  %s\n' "$dtype" "$1" "$2" "$verdict"
    printf '| | | | | saved by %s, continued by %s | %s | %s | %s |\n' "${1:-one rank}" \
        "${2:-one rank}" "$loss" "$norm" "$verdict" >>"$folder/table.md"
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
    continued "tp_size=2 cp_size=2" "pp_size=2 dp_size=2 zero_stage=1"
}

# What strict mode promises besides: other splits of the batch, other threads, other meshes to go on.
more_strict() {
    mesh 1 1 1 1 --training.micro_batch_size=4 --distributed.threads_per_rank=2
    mesh 1 1 1 1 --training.micro_batch_size=16 --training.recompute=full
    mesh 2 1 1 2 --training.micro_batch_size=4 --distributed.dp_reduce=naive
    processes 2 1 1 2 1
    processes 4 2 1 1 2 zero_stage=3
    processes 8 2 2 1 2 zero_stage=1
    continued "" "tp_size=2 cp_size=2"
    continued "tp_size=2 cp_size=2" "pp_size=2 dp_size=2 zero_stage=1"
    continued "dp_size=4 zero_stage=3" "tp_size=8"
    continued "pp_size=4 dp_size=2" "cp_size=2 dp_size=4 zero_stage=2"
    continued "cp_size=4 cp_style=ulysses" "pp_size=2 pp_engine=interleaved pp_chunks=2"
    continued "tp_size=4 sequence_parallel=true dp_size=2 zero_stage=2" ""
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
: >"$folder/table.md"
for dtype in $dtypes; do
    read -r bound norm_bound < <(bounds_of "$dtype")
    if [ "$list" = no ]; then run one || { tail -n 3 "$folder/one.log" >&2; exit 1; }; fi
    {
        printf '\n## %s, %d steps%s\n\n' "$dtype" "$steps" "${strict_words[$strict]}"
        printf '| tp | cp | pp | dp | options | loss | gradient norm | |\n'
        printf '|---|---|---|---|---|---|---|---|\n'
    } >>"$folder/table.md"
    if [ "$part" = no ]; then
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
    if [ -n "$page" ]; then cp "$folder/table.md" "$page"; fi
else
    echo "equivalence: $ran meshes"
fi
[ "$failed" -eq 0 ]
