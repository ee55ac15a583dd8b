#!/usr/bin/env bash
# A checkpoint of any ZeRO stage and number of ranks goes on in any other.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { for (i = 0; i < 400; i++) printf "%04d And it came to pass in the days of the king.\n", i * 7919 % 1000 }' \
    >"$folder/text.txt"
expect 0 tokenizer train --vocab-size=300 --out="$folder/tokenizer.json" "$folder/text.txt"
cat >"$folder/config.json" <<JSON
{"model": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
  "num_attention_heads": 2, "vocab_size": 300, "dtype": "bf16"},
 "training": {"seq_length": 32, "micro_batch_size": 2, "global_batch_size": 8, "grad_clip": 1.0,
  "total_train_steps": 3},
 "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
 "logging": {"hash_frequency": 1, "measure_peak": false}}
JSON

train() { # STATUS RUN OPTIONS...
    local status=$1 run=$2
    shift 2
    expect "$status" train "$folder/config.json" --logging.run_dir="$folder/$run" "$@"
}

# In fp64, against one rank that was never stopped.
train 0 whole --model.dtype=fp64 --training.total_train_steps=4
for pair in "3 1" "1 2" "2 3" "0 3" "3 0"; do
    from=${pair% *} to=${pair#* }
    name=from$from-to$to
    train 0 "$name" --model.dtype=fp64 --training.total_train_steps=2 \
        --distributed.dp_size=2 --distributed.zero_stage="$from" --checkpoint.save_dir="$folder/$name.saved"
    train 0 "$name" --model.dtype=fp64 --training.total_train_steps=4 \
        --distributed.dp_size=4 --distributed.zero_stage="$to" --checkpoint.load_path="$folder/$name.saved"
    for run in whole "$name"; do
        sed -E 's/.*"loss":([0-9.e-]+),.*/\1/' "$folder/$run/metrics.jsonl" >"$folder/$run.losses"
    done
    if ! paste "$folder/whole.losses" "$folder/$name.losses" |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-10 * $1)) bad = 1 } END { exit bad || NR != 4 }'; then
        echo "FAIL: losses of $name differ from those of one rank:"
        paste "$folder/whole.losses" "$folder/$name.losses" | sed 's/^/    /'
        failures=$((failures + 1))
    fi
done
finish
