#!/usr/bin/env bash
# The loss of forty steps of a tiny model in fp32, on a text that lies beside this, against the
# curve that was stored: whatever changes the training by more than the rounding of another
# processor is seen here. `UPDATE=yes` writes the curve anew.
set -euo pipefail

stored=$SOURCE/tests/golden/curve
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/curve.json" <<CONFIG
{
    "model": {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 160,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320, "dtype": "fp32",
        "max_position_embeddings": 64, "tie_word_embeddings": false},
    "training": {"seed": 1, "seq_length": 64, "micro_batch_size": 4,
        "gradient_accumulation_steps": 2, "total_train_steps": 40, "learning_rate": 3e-3,
        "min_learning_rate": 3e-4, "lr_schedule": "cosine", "warmup_steps": 5, "weight_decay": 0.1,
        "adam_beta2": 0.95, "grad_clip": 1.0},
    "dataset": {"name": "$stored/text.txt", "tokenizer": "$folder/tokenizer.json",
        "validation_fraction": 0.1},
    "distributed": {"threads_per_rank": 1},
    "logging": {"run_dir": "$folder/run", "eval_frequency": 20}
}
CONFIG
"$CYCLOTRON" tokenizer train --vocab-size=300 --out="$folder/tokenizer.json" "$stored/text.txt" \
    >"$folder/log"
"$CYCLOTRON" train "$folder/curve.json" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }

# "step loss gradient-norm", and "step validation loss"
sed -nE 's/^\{"step":([0-9]+),"tokens".*"loss":([^,]*),"grad_norm":([^,]*),.*/\1 \2 \3/p
    s/^\{"step":([0-9]+),"val_loss":([^,]*),.*/\1 val \2/p' "$folder/run/metrics.jsonl" \
    >"$folder/losses.txt"
if [ "${UPDATE:-no}" = yes ]; then
    cp "$folder/losses.txt" "$stored/losses.txt"
    exit 0
fi

# Losses to 1e-4, gradient norms, which vary more, to 1e-2.
paste -d ' ' "$stored/losses.txt" "$folder/losses.txt" | awk '
    function far(a, b, bound) { d = a > b ? a - b : b - a; return !(d <= bound * a) }
    NF != 6 || $1 != $4 { print "line " NR ": " $0; faults++; next }
    $2 == "val" { if (far($3, $6, 1e-4)) { print "validation at step " $1 ": " $3 " was stored, " $6 " found"; faults++ } next }
    {
        if (far($2, $5, 1e-4)) { print "loss of step " $1 ": " $2 " was stored, " $5 " found"; faults++ }
        if (far($3, $6, 1e-2)) { print "gradient norm of step " $1 ": " $3 " was stored, " $6 " found"; faults++ }
        d = $2 > $5 ? $2 - $5 : $5 - $2
        if (d / $2 > most) most = d / $2
    }
    END {
        print NR " lines, the largest difference of a loss " most + 0
        exit faults > 0 || NR != 42
    }'
