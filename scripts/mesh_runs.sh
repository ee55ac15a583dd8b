#!/usr/bin/env bash
# One small model trained on one mesh or another: what the table of meshes (scripts/equivalence.sh)
# and the pairs that continue each other's checkpoints (tests/dist/resume_pairs.sh) share. Sourced.
#
# The caller sets `program` (cyclotron), `folder` (where everything goes), `dtype` and `strict`.
# shellcheck disable=SC2034,SC2154

# name: tp cp pp dp, then options without their section. For pairs.
meshes='
one     1 1 1 1
tp2     2 1 1 1 sequence_parallel=true
tp4     4 1 1 1
tp8     8 1 1 1 sequence_parallel=true
cp2     1 2 1 1
cp3     1 3 1 1 cp_style=all_gather
cp4u    1 4 1 1 cp_style=ulysses
pp2     1 1 2 1 pp_engine=afab
pp2v    1 1 2 1 pp_engine=interleaved pp_chunks=2
pp3     1 1 3 1 pp_engine=1f1b
pp4z    1 1 4 1 pp_engine=zero_bubble pp_chunks=2
pp8     1 1 8 1 pp_engine=zero_bubble
dp2     1 1 1 2 dp_reduce=naive
dp2z1   1 1 1 2 zero_stage=1
dp3z2   1 1 1 3 zero_stage=2
dp4z3   1 1 1 4 zero_stage=3
dp8z3   1 1 1 8 zero_stage=3
tc4     2 2 1 1
tcd8    2 2 1 2 sequence_parallel=true zero_stage=1
tpd8    2 1 2 2 sequence_parallel=true zero_stage=2
cpd8    1 2 2 2 zero_stage=3
tcpd16  2 2 2 2 sequence_parallel=true zero_stage=2 pp_engine=interleaved pp_chunks=2
'

# words_of MESH: its four sizes and options, as a line; fails where there is no such mesh.
words_of() {
    awk -v mesh="$1" '$1 == mesh { $1 = ""; print; found = 1 } END { exit !found }' <<<"$meshes" ||
        { echo "error: there is no mesh $1" >&2; return 2; }
}

# bounds_of DTYPE: the bounds on losses, gradient norms and weights.
bounds_of() {
    case $1 in
    fp64) echo 1e-10 1e-9 1e-9 ;;
    fp32) echo 1e-5 1e-4 1e-4 ;;
    bf16) echo 1e-2 2e-2 1e-2 ;;
    *) echo "error: dtype $1: fp64, fp32 or bf16" >&2; return 2 ;;
    esac
}

# make_data: a text made by a script, its tokenizer and its token shards, once a folder.
make_data() {
    if [ -d "$folder/data" ]; then return; fi
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
    "$program" tokenizer train --vocab-size=320 --out="$folder/tokenizer.json" \
        "$folder/text.txt" >/dev/null
    "$program" data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/data" \
        "$folder/text.txt" >/dev/null 2>&1
}

# make_config STEPS MODEL TRAINING: 8 layers, 8 heads and 4 kv heads, and the members given. The
# machine's peak is of no use here, and measuring it takes longer than some of the runs.
make_config() {
    cat >"$folder/config.json" <<CONFIG
{
    "model": {"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
        "tie_word_embeddings": true, $2},
    "training": {"micro_batch_size": 1, "total_train_steps": $1, "grad_clip": 1.0,
        "weight_decay": 0.1, "strict": $strict, $3},
    "dataset": {"name": "$folder/data", "tokenizer": "$folder/tokenizer.json"},
    "distributed": {"threads_per_rank": 1},
    "logging": {"hash_frequency": 1, "measure_peak": false}
}
CONFIG
}

# train NAME "TP CP PP DP OPTION..." ARGUMENT...: trains, and leaves step, loss, gradient norm and
# hash of each step in NAME.numbers and what it printed in NAME.log. An OPTION is one of the section
# distributed, or --section.key=value. A run of more than ROW_SECONDS (900) is ended and has failed.
train() {
    local name=$1 words options=() option
    read -r -a words <<<"$2"
    shift 2
    for option in "${words[@]:4}"; do
        case $option in
        --*) options+=("$option") ;;
        *) options+=("--distributed.$option") ;;
        esac
    done
    rm -rf "$folder/run"
    timeout "${ROW_SECONDS:-900}" "$program" train "$folder/config.json" --logging.run_dir="$folder/run" \
        --model.dtype="$dtype" --distributed.tp_size="${words[0]}" \
        --distributed.cp_size="${words[1]}" --distributed.pp_size="${words[2]}" \
        --distributed.dp_size="${words[3]}" ${options[@]+"${options[@]}"} "$@" \
        >"$folder/$name.log" 2>&1 || {
        if [ $? -eq 124 ]; then
            echo "error: it took more than ${ROW_SECONDS:-900} s" >>"$folder/$name.log"
        fi
        return 1
    }
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*"params_hash":"\([0-9a-f]*\)".*/\1 \2 \3 \4/p' \
        "$folder/run/metrics.jsonl" >"$folder/$name.numbers"
    [ -s "$folder/$name.numbers" ]
}

# why NAME...: the first error of these runs.
why() {
    local name
    for name in "$@"; do
        grep -h -m 1 error "$folder/$name.log" && return
    done
    tail -n 1 "$folder/$1.log"
}

# compare NAME STEPS ONE OTHER: the worst differences of NAME's losses, norms and, where the
# checkpoint folders ONE and OTHER are given, weights from those of one rank (one.numbers), then ok, OFF,
# or same where every bit is. NAME must have so many steps. Losses are compared by their share, in
# bf16 as they are; weights by the 2-norm of the difference of a tensor, the worst of all.
compare() {
    local weights=- equal=true bounds told
    bounds=$(bounds_of "$dtype")
    if [ -n "${3:-}" ]; then
        told=$("$program" checkpoint compare "$3" "$4" --json) ||
            { echo "- - - OFF: states cannot be compared"; return; }
        weights=$(sed -n 's/^{"difference":\([^,]*\),.*/\1/p' <<<"$told")
        equal=$(sed -n 's/^{"difference":[^,]*,"equal":\([a-z]*\),.*/\1/p' <<<"$told")
    fi
    awk -v bounds="$bounds" -v dtype="$dtype" -v strict="$strict" -v steps="$2" \
        -v weights="$weights" -v equal="$equal" '
        function off(a, b) { return a > b ? a - b : b - a }
        NR == FNR { loss[$1] = $2; norm[$1] = $3; hash[$1] = $4; next }
        {
            d = off($2, loss[$1]) / (dtype == "bf16" ? 1 : loss[$1])
            if (!(d <= worst)) worst = d
            d = off($3, norm[$1]) / norm[$1]
            if (!(d <= most)) most = d
            if ($2 != loss[$1] || $3 != norm[$1] || $4 != hash[$1]) differ = 1
            count++
        }
        END {
            split(bounds, bound, " ")
            if (weights != "-") {
                apart = sprintf("%.1e", weights)
                if (!(weights <= bound[3])) far = 1
            } else {
                apart = "-"
            }
            near = worst <= bound[1] && most <= bound[2] && !far
            verdict = count != steps ? "OFF: " count + 0 " steps" : \
                !differ && equal == "true" ? "same" : strict == "true" || !near ? "OFF" : "ok"
            printf "%.1e %.1e %s %s\n", worst, most, apart, verdict
        }' "$folder/one.numbers" "$folder/$1.numbers"
}
