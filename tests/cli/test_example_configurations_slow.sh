#!/usr/bin/env bash
# The configurations of examples/ train two steps each; those of models that take minutes are planned.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

for config in "$source_folder"/examples/*.json; do
    name=$(basename "$config" .json)
    case $name in
    smollm-135m | picotron)
        expect 0 plan "$config" --dataset.name="$folder/text.txt" \
            --dataset.tokenizer="$folder/tokenizer.json"
        ;;
    *)
        expect 0 train "$config" --dataset.name="$folder/text.txt" \
            --dataset.tokenizer="$folder/tokenizer.json" --logging.run_dir="$folder/run-$name" \
            --checkpoint.save_dir="$folder/saves-$name" --logging.eval_frequency=0 \
            --training.total_train_steps=2 --training.warmup_steps=0 \
            --distributed.threads_per_rank=1
        same "steps of $name" 2 "$(grep -c '"loss"' "$folder/run-$name/metrics.jsonl")"
        ;;
    esac
done

finish
