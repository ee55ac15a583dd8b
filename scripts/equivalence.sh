#!/usr/bin/env bash
# One training on many meshes: `make equivalence`. Every mesh trains the same small model on the same
# text with the same global batch; its losses and gradient norms are held against those of one rank.
#
#   scripts/equivalence.sh [--part] [--steps=N] [--dtype=fp64|fp32|bf16] [--ranks="1 2 4 8"]
#
# --part takes a few meshes of each kind, for the tests. Prints one line a mesh with the worst
# relative difference, writes the table to EQUIVALENCE/table.md (build/equivalence), and fails if a
# mesh is off by more than its dtype's bound. CYCLOTRON is the program.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${CYCLOTRON:-build/cyclotron}
folder=${EQUIVALENCE:-build/equivalence}
steps=20
dtype=fp64
worlds="1 2 4 8"
part=no
for argument in "$@"; do
    case $argument in
    --part) part=yes ;;
    --steps=*) steps=${argument#*=} ;;
    --dtype=*) dtype=${argument#*=} ;;
    --ranks=*) worlds=${argument#*=} ;;
    *) echo "equivalence: error: what is $argument" >&2; exit 2 ;;
    esac
done
# The bounds on losses and on gradient norms, relative. Norms of 16-bit gradients tell little: they
# are small sums of rounded numbers.
case $dtype in
fp64) bound=1e-10 norm_bound=1e-9 ;;
fp32) bound=1e-5 norm_bound=1e-4 ;;
bf16) bound=1e-2 norm_bound=1 ;;
*) echo "equivalence: error: dtype $dtype: fp64, fp32 or bf16" >&2; exit 2 ;;
esac

mkdir -p "$folder"
awk 'BEGIN {
    split("the a one ring of ranks that sums its parts in order and gives each rank all of them", w, " ")
    state = 1
    for (line = 0; line < 1500; line++) {
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
    "model": {"num_hidden_layers": 8, "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 320, "dtype": "$dtype",
        "tie_word_embeddings": true},
    "training": {"seq_length": 64, "micro_batch_size": 1, "global_batch_size": 16,
        "total_train_steps": $steps, "learning_rate": 3e-3, "grad_clip": 1.0, "weight_decay": 0.1},
    "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
    "distributed": {"threads_per_rank": 1},
    "logging": {"hash_frequency": 1}
}
END

# run NAME OPTION...: leaves losses and norms in NAME.numbers.
run() {
    local name=$1
    shift
    rm -rf "$folder/run"
    "$program" train "$folder/config.json" --logging.run_dir="$folder/run" "$@" \
        >"$folder/$name.log" 2>&1 || return 1
    sed -n 's/.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*/\1 \2/p' "$folder/run/metrics.jsonl" \
        >"$folder/$name.numbers"
    [ "$(wc -l <"$folder/$name.numbers")" -eq "$steps" ]
}

# worst NAME: the largest relative difference of NAME's losses and norms from those of one rank.
worst() {
    paste "$folder/one.numbers" "$folder/$1.numbers" | awk '
        function off(a, b) { d = a > b ? a - b : b - a; return d / (a > 0 ? a : 1) }
        { if (off($1, $3) > most) most = off($1, $3); if (off($2, $4) > norm) norm = off($2, $4) }
        END { printf "%.1e %.1e", most, norm }'
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
        verdict=$(echo "$differences $bound $norm_bound" |
            awk '{ print ($1 <= $3 && $2 <= $4) ? "ok" : "OFF" }')
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

# The options that a mesh is run with besides none.
variants() {
    local tp=$1 cp=$2 pp=$3 dp=$4
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

if [ "$part" = yes ]; then
    variants 2 1 1 1
    variants 1 2 1 1
    variants 1 1 2 1
    variants 1 1 1 2
    mesh 2 2 1 2 --distributed.sequence_parallel=true --distributed.zero_stage=1
    mesh 2 1 2 2 --distributed.sequence_parallel=true --distributed.zero_stage=1
    mesh 1 2 2 2
else
    for world in $worlds; do
        for tp in 1 2 4 8; do for cp in 1 2 4 8; do for pp in 1 2 4 8; do for dp in 1 2 4 8; do
            if [ $((tp * cp * pp * dp)) -eq "$world" ]; then variants "$tp" "$cp" "$pp" "$dp"; fi
        done; done; done; done
    done
    mesh 2 2 2 2 --distributed.sequence_parallel=true
fi
echo "equivalence: $count meshes over $steps steps in $dtype, $failed beyond $bound"
[ "$failed" -eq 0 ]
