#!/usr/bin/env bash
# One training on many meshes: `make equivalence`. Every mesh trains the same small model on the same
# text with the same global batch; its losses and gradient norms are held against those of one rank.
#
#   scripts/equivalence.sh [--part] [--strict] [--steps=N] [--dtype=fp64|fp32|bf16]
#                          [--ranks="1 2 4 8 16"]
#
# --part takes a few meshes of each kind, for the tests. Prints one line a mesh with the worst
# relative difference, writes the table to EQUIVALENCE/table.md (build/equivalence), and fails if a
# mesh is off by more than its dtype's bound. CYCLOTRON is the program.
#
# --strict trains in strict mode, in fp32 unless told otherwise: losses, gradient norms and the hash
# of all parameters after each step must be those of one rank, digit by digit; so must those of runs
# that continue another mesh's checkpoint.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${CYCLOTRON:-build/cyclotron}
folder=${EQUIVALENCE:-build/equivalence}
steps=20
dtype=
worlds="1 2 4 8 16"
part=no
strict=false
for argument in "$@"; do
    case $argument in
    --part) part=yes ;;
    --strict) strict=true ;;
    --steps=*) steps=${argument#*=} ;;
    --dtype=*) dtype=${argument#*=} ;;
    --ranks=*) worlds=${argument#*=} ;;
    *) echo "equivalence: error: what is $argument" >&2; exit 2 ;;
    esac
done
if [ -z "$dtype" ]; then
    dtype=fp64
    if [ $strict = true ]; then dtype=fp32; fi
fi
# The bounds on losses and on gradient norms, relative. Norms of 16-bit gradients tell little: they
# are small sums of rounded numbers.
case $dtype in
fp64) bound=1e-10 norm_bound=1e-9 ;;
fp32) bound=1e-5 norm_bound=1e-4 ;;
bf16) bound=1e-2 norm_bound=1 ;;
*) echo "equivalence: error: dtype $dtype: fp64, fp32 or bf16" >&2; exit 2 ;;
esac

# Strict mode cuts axes at multiples of its blocks, of 32 tokens at least.
vocabulary=320 width=128 length=64
if [ $strict = true ]; then vocabulary=512 width=256 length=256; fi

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
        "dtype": "$dtype",
        "tie_word_embeddings": true},
    "training": {"strict": $strict, "seq_length": $length, "micro_batch_size": 1,
        "global_batch_size": 16,
        "total_train_steps": $steps, "learning_rate": 3e-3, "grad_clip": 1.0, "weight_decay": 0.1},
    "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
    "distributed": {"threads_per_rank": 1},
    "logging": {"hash_frequency": 1}
}
END

# run NAME OPTION...: leaves losses, norms and hashes in NAME.numbers.
run() {
    local name=$1
    shift
    rm -rf "$folder/run"
    "$program" train "$folder/config.json" --logging.run_dir="$folder/run" "$@" \
        >"$folder/$name.log" 2>&1 || return 1
    sed -n 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*"params_hash":"\([^"]*\)".*/\1 \2 \3/p' \
        "$folder/run/metrics.jsonl" >"$folder/$name.numbers"
    [ -s "$folder/$name.numbers" ]
}

# worst NAME: the largest relative difference of NAME's losses and norms from those of one rank.
worst() {
    paste "$folder/one.numbers" "$folder/$1.numbers" | awk '
        function off(a, b) { d = a > b ? a - b : b - a; return d / (a > 0 ? a : 1) }
        { if (off($1, $4) > most) most = off($1, $4); if (off($2, $5) > norm) norm = off($2, $5) }
        END { printf "%.1e %.1e", most, norm }'
}

# judge NAME DIFFERENCES: ok, or what is wrong with its numbers.
judge() {
    if [ "$(wc -l <"$folder/$1.numbers")" -ne "$steps" ]; then
        echo "FAILED: $(wc -l <"$folder/$1.numbers") of $steps steps"
    elif [ $strict = true ]; then
        if cmp -s "$folder/one.numbers" "$folder/$1.numbers"; then echo ok; else echo OFF; fi
    else
        echo "$2 $bound $norm_bound" | awk '{ print ($1 <= $3 && $2 <= $4) ? "ok" : "OFF" }'
    fi
}

run one || { tail -n 3 "$folder/one.log" >&2; exit 1; }
count=0
failed=0
{
    printf '| tp | cp | pp | dp | options | loss | gradient norm | |\n'
    printf '|---|---|---|---|---|---|---|---|\n'
} >"$folder/table.md"

# mesh TP CP PP DP OPTION...
mesh() {
    local tp=$1 cp=$2 pp=$3 dp=$4
    shift 4
    local words=() verdict=ok differences="- -"
    local option
    for option in "$@"; do words+=("${option#--distributed.}"); done
    if run mesh --distributed.tp_size="$tp" --distributed.cp_size="$cp" \
        --distributed.pp_size="$pp" --distributed.dp_size="$dp" "$@"; then
        differences=$(worst mesh)
        verdict=$(judge mesh "$differences")
    else
        verdict="FAILED: $(grep -m 1 error "$folder/mesh.log" || tail -n 1 "$folder/mesh.log")"
    fi
    count=$((count + 1))
    if [ "$verdict" != ok ]; then failed=$((failed + 1)); fi
    printf 'tp %d cp %d pp %d dp %d  %-52s loss %s norm %s  %s\n' "$tp" "$cp" "$pp" "$dp" \
        "${words[*]:-}" "${differences% *}" "${differences#* }" "$verdict"
    printf '| %d | %d | %d | %d | %s | %s | %s | %s |\n' "$tp" "$cp" "$pp" "$dp" "${words[*]:-}" \
        "${differences% *}" "${differences#* }" "$verdict" >>"$folder/table.md"
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
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mesh "$@" --distributed.backend=mpi
    program=$threads
}

# continued "WRITER OPTIONS" "READER OPTIONS": the first half of the steps on one mesh, the rest on
# another from its checkpoint, against one rank without a stop.
continued() {
    local half=$((steps / 2)) verdict=ok option writer=() reader=()
    for option in $1; do writer+=("--distributed.$option"); done
    for option in $2; do reader+=("--distributed.$option"); done
    rm -rf "$folder/saved"
    if run first --training.total_train_steps=$half --checkpoint.save_dir="$folder/saved" \
        ${writer[@]+"${writer[@]}"} && cp "$folder/first.numbers" "$folder/halves.numbers" &&
        run second --checkpoint.load_path="$folder/saved" ${reader[@]+"${reader[@]}"}; then
        cat "$folder/second.numbers" >>"$folder/halves.numbers"
        verdict=$(judge halves)
    else
        verdict="FAILED: $(grep -h -m 1 error "$folder/first.log" "$folder/second.log" || true)"
    fi
    count=$((count + 1))
    if [ "$verdict" != ok ]; then failed=$((failed + 1)); fi
    printf 'saved by [%s], continued by [%s]  %s\n' "$1" "$2" "$verdict"
    printf '| | | | | saved by %s, continued by %s | | | %s |\n' "${1:-one rank}" \
        "${2:-one rank}" "$verdict" >>"$folder/table.md"
}

# The options that a mesh is run with besides none.
variants() {
    local tp=$1 cp=$2 pp=$3 dp=$4
    # Eight ranks with two pieces of a sequence each would cut it finer than strict mode's blocks.
    if [ "$cp" -eq 8 ] && [ $strict = true ]; then set -- "$@" --distributed.cp_layout=contiguous; fi
    mesh "$@"
    if [ "$tp" -gt 1 ]; then mesh "$@" --distributed.sequence_parallel=true; fi
    if [ $((dp * cp)) -gt 1 ]; then
        local stage
        for stage in 1 2 3; do
            mesh "$@" --distributed.zero_stage="$stage"
        done
    fi
    if [ "$cp" -gt 1 ]; then
        mesh "$@" --distributed.cp_layout=contiguous
        mesh "$@" --distributed.cp_style=all_gather
        if [ $((tp * cp)) -le 4 ]; then mesh "$@" --distributed.cp_style=ulysses; fi
    fi
    if [ "$pp" -gt 1 ]; then
        mesh "$@" --distributed.pp_engine=afab
        mesh "$@" --distributed.pp_engine=zero_bubble
        if [ "$pp" -le 4 ]; then
            mesh "$@" --distributed.pp_engine=interleaved --distributed.pp_chunks=2
            mesh "$@" --distributed.pp_engine=zero_bubble --distributed.pp_chunks=2
        fi
    fi
}

if [ "$part" = yes ] && [ $strict = true ]; then
    mesh 2 1 1 2 --distributed.sequence_parallel=true --distributed.zero_stage=2
    mesh 8 1 1 1
    mesh 1 2 1 1
    mesh 2 4 1 1 --distributed.cp_style=all_gather
    mesh 1 4 1 2 --distributed.cp_style=ulysses --distributed.zero_stage=3
    mesh 1 1 4 1 --distributed.pp_engine=zero_bubble
    mesh 1 2 2 2 --distributed.zero_stage=1
    mesh 1 1 1 1 --training.micro_batch_size=4 --distributed.threads_per_rank=2
    processes 4 2 1 1 2 --distributed.zero_stage=1
    continued "tp_size=2 cp_size=2" "pp_size=2 dp_size=2 zero_stage=1"
elif [ "$part" = yes ]; then
    variants 2 1 1 1
    variants 1 2 1 1
    variants 1 1 2 1
    variants 1 1 1 2
    mesh 2 2 1 2 --distributed.sequence_parallel=true --distributed.zero_stage=1
    mesh 2 1 2 2 --distributed.sequence_parallel=true --distributed.zero_stage=1
    mesh 1 2 2 2
else
    for world in $worlds; do
        if [ "$world" -eq 16 ]; then
            mesh 2 2 2 2 --distributed.sequence_parallel=true
            mesh 2 2 2 2 --distributed.zero_stage=1 --distributed.cp_style=ulysses
            mesh 4 1 2 2 --distributed.sequence_parallel=true --distributed.zero_stage=1
            mesh 1 4 1 4 --distributed.zero_stage=3
            mesh 1 2 4 2 --distributed.pp_engine=zero_bubble
            mesh 8 1 1 2 --distributed.zero_stage=2
            continue
        fi
        for tp in 1 2 4 8; do for cp in 1 2 4 8; do for pp in 1 2 4 8; do for dp in 1 2 4 8; do
            if [ $((tp * cp * pp * dp)) -eq "$world" ]; then variants "$tp" "$cp" "$pp" "$dp"; fi
        done; done; done; done
    done
    if [ $strict = true ]; then
        mesh 1 1 1 1 --training.micro_batch_size=4 --distributed.threads_per_rank=2
        mesh 1 1 1 1 --training.micro_batch_size=16 --training.recompute=full
        mesh 2 1 1 2 --training.micro_batch_size=4 --distributed.dp_reduce=naive
        processes 2 1 1 2 1
        processes 4 2 1 1 2 --distributed.zero_stage=3
        processes 8 2 2 1 2 --distributed.zero_stage=1
        continued "" "tp_size=2 cp_size=2"
        continued "tp_size=2 cp_size=2" "pp_size=2 dp_size=2 zero_stage=1"
        continued "dp_size=4 zero_stage=3" "tp_size=8"
        continued "pp_size=4 dp_size=2" "cp_size=2 dp_size=4 zero_stage=2"
        continued "cp_size=4 cp_style=ulysses" "pp_size=2 pp_engine=interleaved pp_chunks=2"
        continued "tp_size=4 sequence_parallel=true dp_size=2 zero_stage=2" ""
    fi
fi
if [ $strict = true ]; then bound="the last bit"; fi
echo "equivalence: $count meshes over $steps steps in $dtype, $failed beyond $bound"
[ "$failed" -eq 0 ]
