#!/usr/bin/env bash
# cyclotron config: create, check, show; picotron's files; every error of a bad file; the page of
# all keys is the one in docs/.

. "$(dirname "$0")/lib.sh"
cd "$source_folder" || exit 1

# Every error at once, each with what would do.
expect 2 config check tests/cli/expected/bad.json
is out ""
is_file err bad.txt

expect 2 config check tests/cli/expected/bad.json --json
is err ""
says out '{"error": "modle: no such section", "hint": "did you mean model?"}'
if grep -q secret "$folder/out" "$folder/err"; then
    echo "FAIL: a token was repeated"
    failures=$((failures + 1))
fi

# What stands in examples/ is right, up to the data that must be made first.
for example in examples/*.json; do
    expect 0 config check --for=plan "$example"
    is err ""
    expect 0 config show "$example"
    cp "$folder/out" "$folder/shown.json"
    expect 0 config show "$folder/shown.json" # the resolved one comes to itself
    is out "$(cat "$folder/shown.json")"
done

# A picotron user's file; the data is a folder of theirs.
for ((i = 0; i < 2000; i++)); do echo "the $i. king went up to the house of stone"; done \
    >"$folder/text.txt"
expect 0 tokenizer train --vocab-size=300 --out="$folder/tokenizer.json" "$folder/text.txt"
expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/data" "$folder/text.txt"
expect 0 config check examples/picotron.json --dataset.name="$folder/data"
says out 'global batch: 4 samples, 4096 tokens'
expect 2 config check examples/picotron.json
is err 'cyclotron: error: dataset.name = "data/tinystories": no such file or folder
  hint: nothing is downloaded while training: save the text as .txt or .jsonl, then '"'cyclotron data prepare --tokenizer=tokenizer.json --out=DIR FILE...'"', and give DIR'

# The command line wins, in both forms; a key may be written with dashes.
expect 0 config show examples/tiny.json --training.seed=7 --training.learning-rate 0.5
says out '"seed": 7,'
says out '"learning_rate": 0.5,'
expect 2 config show examples/tiny.json --training.sead=7
says err 'training.sead: no such key'
says err '  hint: did you mean training.seed?'
expect 2 config show examples/tiny.json --training.seed
says err '--training.seed needs a value'

expect 2 config show examples/tiny.json --distributed.pp_size=2 --distributed.pp_layers=3,1
is err "cyclotron: error: distributed.pp_layers = \"3,1\": a list of 1 to 256 whole numbers is wanted
  hint: as in --distributed.pp_layers='[3,1]'"
expect 0 config show --keys # where the form stands too
says out 'list, as [3,1]'
says out 'path, or one of tiny, demo, smollm-135m, smollm-360m, smollm-1.7b, llama-3.2-1b, llama-2-7b, llama-3-8b'
expect 0 config create --help
says out 'Presets: tiny, demo, smollm-135m, '

# Files that are none.
expect 2 config check "$folder/nothing.json"
is err "cyclotron: error: configuration: open $folder/nothing.json: No such file or directory"
printf '{"model": {' >"$folder/cut.json"
expect 2 config check "$folder/cut.json"
says err "cut.json: line 1, column"
expect 2 config check
says err 'cyclotron config check needs CONFIG'
expect 2 config chekc
is err "cyclotron: error: there is no command 'cyclotron config chekc'
  hint: did you mean 'check'?"

# create: picotron's options, with - or _.
expect 0 config create --out_dir="$folder" --exp-name=one --tp 1 --dp=2 --mbs=3 --grad_acc_steps 4 \
    --seq-len=256 --model_name=smollm-135m --num_hidden_layers=2 --use_cpu --use_fused_adam \
    --hf_token=secret --learning-rate=1e-3 --environment.OMP_NUM_THREADS=2
is out "global batch: 24 samples, 6144 tokens (mbs 3 x grad_acc_steps 4 x dp 2, seq_len 256)
configuration: $folder/one/config.json"
if grep -q secret "$folder/one/config.json"; then
    echo "FAIL: the token was saved"
    failures=$((failures + 1))
fi
expect 0 config show "$folder/one/config.json"
says out '"num_hidden_layers": 2,'
says out '"hidden_size": 576,'
says out '"learning_rate": 0.001,'
says out '"threads_per_rank": 2,'
says out '"run_name": "one"'
expect 2 config create --out_dir="$folder" --exp-name=one --model-name=tiny
says err "$folder/one/config.json is there already"
says err '  hint: --force replaces it'
expect 0 config create --out_dir="$folder" --exp-name=one --model-name=tiny --seq-len=64 --force --json
is out "{\"path\": \"$folder/one/config.json\", \"global_batch_size\": 1, \"global_batch_tokens\": 64}"
expect 2 config create --out_dir="$folder" --exp-name=two --tp=2 --use_wandb
says err 'distributed.tp_size = 2: does not divide model.num_attention_heads 15'
says err 'logging.use_wandb = true'
if [ -e "$folder/two" ]; then
    echo "FAIL: a wrong configuration was written"
    failures=$((failures + 1))
fi
# What 'config check' would refuse whatever lies on the disk is not written either.
expect 2 config create --out_dir="$folder" --exp-name=two --subset_name=abc
is err 'cyclotron: error: dataset.subset_name = "abc": local data has no subsets
  hint: give the subset'"'s files or shards as dataset.name"
expect 2 config create --out_dir="$folder" --exp-name=two --save_frequency=10
is err 'cyclotron: error: checkpoint.save_frequency = 10: save_dir names no folder'
if [ -e "$folder/two" ]; then
    echo "FAIL: a configuration that cannot train was written"
    failures=$((failures + 1))
fi
# Data and folders may be made later.
expect 0 config create --out_dir="$folder" --exp-name=two --dataset-name=later --tokenizer=later.json \
    --load-path=later --total-train-steps=5
expect 2 config check "$folder/two/config.json"
says err 'dataset.name = "later": no such file or folder'

# The page of all keys is the program's own.
expect 0 config show --markdown
if ! diff -u docs/configuration.md "$folder/out"; then
    echo "FAIL: run 'build/cyclotron config show --markdown >docs/configuration.md'"
    failures=$((failures + 1))
fi
expect 0 config show --defaults
expect 2 config show --keys --json
says err '--keys, --words and --markdown print text, not JSON'
expect 0 config show --keys
says out 'distributed.tp_size'

finish
