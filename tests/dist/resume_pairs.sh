#!/usr/bin/env bash
# A checkpoint of any mesh goes on on any other: saved on one, continued on the other, in both
# directions, against one rank that was never stopped.
#
#   resume_pairs.sh PAIR...      a pair is two names of the list below, as one:tp2
#
# One line a direction with the worst relative difference of the losses and gradient norms after the
# resume; fails when one exceeds the bound of fp64. DTYPE (fp64), STRICT (false), LENGTH (48) are taken from
# the environment; with STRICT=true the numbers and hashes must be the same bit for bit. TABLE names
# a file for the rows of docs/checkpoints.md.
set -euo pipefail
program=${CYCLOTRON:-build/cyclotron}
dtype=${DTYPE:-fp64}
strict=${STRICT:-false}
length=${LENGTH:-48}
saved_at=3
last=6
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# name: tp cp pp dp, then options without their section.
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
tcd8    2 2 1 2 sequence_parallel=true zero_stage=1
tpd8    2 1 2 2 sequence_parallel=true zero_stage=2
cpd8    1 2 2 2 zero_stage=3
tcpd16  2 2 2 2 sequence_parallel=true zero_stage=2 pp_engine=interleaved pp_chunks=2
'

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
"$program" tokenizer train --vocab-size=320 --out="$folder/tokenizer.json" "$folder/text.txt" \
    >/dev/null
# 8 layers, 8 heads and 4 kv heads, a length that 2, 3 and 4 pieces of zigzag divide, 24 samples.
cat >"$folder/config.json" <<END
{
    "model": {"num_hidden_layers": 8, "hidden_size": 32, "intermediate_size": 64,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 320, "dtype": "$dtype",
        "tie_word_embeddings": true},
    "training": {"seq_length": $length, "micro_batch_size": 1, "global_batch_size": 24,
        "total_train_steps": $last, "learning_rate": 3e-3, "lr_schedule": "cosine",
        "lr_decay_steps": $last, "warmup_steps": 2, "grad_clip": 1.0, "weight_decay": 0.1,
        "strict": $strict},
    "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
    "distributed": {"threads_per_rank": 1},
    "logging": {"hash_frequency": 1}
}
END

# train RUN MESH OPTION...: leaves step, loss, gradient norm and hash of each step in RUN.numbers.
train() {
    local run=$1 mesh=$2 words options=() option
    shift 2
    read -r -a words < <(awk -v mesh="$mesh" '$1 == mesh' <<<"$meshes") || true
    if [ ${#words[@]} -eq 0 ]; then
        echo "resume: error: there is no mesh $mesh" >&2
        exit 2
    fi
    for option in "${words[@]:5}"; do options+=("--distributed.$option"); done
    rm -rf "$folder/run"
    if ! "$program" train "$folder/config.json" --logging.run_dir="$folder/run" \
        --distributed.tp_size="${words[1]}" --distributed.cp_size="${words[2]}" \
        --distributed.pp_size="${words[3]}" --distributed.dp_size="${words[4]}" \
        ${options[@]+"${options[@]}"} "$@" >"$folder/log" 2>&1; then
        tail -n 5 "$folder/log"
        return 1
    fi
    sed -n 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),"grad_norm":\([^,]*\),.*"params_hash":"\([0-9a-f]*\)".*/\1 \2 \3 \4/p' \
        "$folder/run/metrics.jsonl" >"$folder/$run.numbers"
}

# compare RUN: the worst differences of RUN's steps from those of one rank; fails beyond the bound.
compare() {
    awk -v wanted=$((last - saved_at)) -v strict="$strict" -v dtype="$dtype" '
        function off(a, b) { d = a > b ? a - b : b - a; return d / (b > 0 ? b : 1) }
        NR == FNR { loss[$1] = $2; norm[$1] = $3; hash[$1] = $4; next }
        {
            count++
            if (off($2, loss[$1]) > worst) worst = off($2, loss[$1])
            if (off($3, norm[$1]) > most) most = off($3, norm[$1])
            if ($2 != loss[$1] || $3 != norm[$1] || $4 != hash[$1]) differ = 1
        }
        END {
            bound = dtype == "fp64" ? 1e-10 : dtype == "fp32" ? 1e-5 : 1e-2
            printf "%.1e %.1e%s\n", worst, most, differ ? "" : " (same bits)"
            exit !(count == wanted && worst <= bound && (strict != "true" || !differ))
        }' "$folder/whole.numbers" "$folder/$1.numbers"
}

declare -A saved
# save MESH: three steps of the mesh and a checkpoint, once.
save() {
    if [ -n "${saved[$1]:-}" ]; then return; fi
    train "saved" "$1" --training.total_train_steps=$saved_at --checkpoint.save_dir="$folder/$1"
    saved[$1]=yes
}

failed=0
count=0
# follow FROM TO: continues on TO what FROM saved.
follow() {
    local verdict=ok differences=-
    save "$1"
    if ! train next "$2" --checkpoint.load_path="$folder/$1"; then
        verdict=FAILED
    elif ! differences=$(compare next); then
        verdict=OFF
    fi
    count=$((count + 1))
    if [ $verdict != ok ]; then failed=$((failed + 1)); fi
    printf '%-8s -> %-8s %s  %s\n' "$1" "$2" "$differences" "$verdict"
    if [ -n "${TABLE:-}" ]; then
        printf '| %s | %s | %s | %s |\n' "$1" "$2" "${differences% *}" "${differences#* }" >>"$TABLE"
    fi
}

train whole one
for pair in "$@"; do
    follow "${pair%:*}" "${pair#*:}"
    follow "${pair#*:}" "${pair%:*}"
done
echo "resume: $count continuations in $dtype, $failed of them not the run of one rank"
[ "$failed" -eq 0 ]
