#!/usr/bin/env bash
# cyclotron train: what a run writes and says, where it stops, how it goes on.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# ---- lines and files

train 0 whole --logging.measure_peak=true --logging.hash_frequency=4 --logging.eval_frequency=4 --logging.eval_tokens=1000 \
    --checkpoint.save_dir="$folder/saves" --checkpoint.save_frequency=3
number='[0-9.]+[KMBT]?'
line="^\\[rank 0\\] Step: [0-9]+ \\| Loss: [0-9]+\\.[0-9]{4} \\| Global batch size: 256 \\| "
line+="Tokens/s: $number \\| Tokens/s/GPU: $number \\| Tokens: $number \\| "
line+="MFU: [0-9]+\\.[0-9]{2}% \\| Memory usage: [0-9]+\\.[0-9]{2}GB \\| "
line+="Grad norm: [0-9.]+ \\| LR: [0-9.]+e[-+][0-9]{2}\$"
same "step lines and all lines of stdout" "8 8" \
    "$(grep -cE "$line" "$folder/out") $(wc -l <"$folder/out")"
same "the steps" "1 2 3 4 5 6 7 8" "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out" | xargs)"
check "no colours without a terminal" \
    bash -c "! grep -q \$'\\033' '$folder/out' '$folder/err'"
says err 'mesh: 1 rank'
says err 'step 4: validation loss'
says err "saved step 8 in $folder/saves"

fields='step tokens loss grad_norm lr step_s tok_s tok_s_rank mfu mfu_causal mem_gb data_s data_ready comm skipped'
found() {
    grep -oE '"[a-z_]+":' | tr -d '":' | xargs
}
metrics=$folder/whole/metrics.jsonl
same "fields of a step" "$fields" "$(head -n 1 "$metrics" | found)"
same "fields of a step with its hash" "$fields params_hash" \
    "$(grep '"step":4,.*"loss"' "$metrics" | found)"
same "fields of an evaluation" "step val_loss val_tokens" "$(grep val_loss "$metrics" | head -n 1 | found)"
check "an mfu in every line" test "$(grep -cE '"mfu":[0-9.e-]+,"mfu_causal":[0-9.e-]+,' "$metrics")" = 8
same "lines" "8 2 2" "$(grep -c '"loss"' "$metrics") $(grep -c val_loss "$metrics") $(grep -c \
    '"params_hash":"[0-9a-f]\{16\}"' "$metrics")"
same "the tokens after eight steps" '"tokens":2048' "$(tail -n 2 "$metrics" | grep -o '"tokens":2048')"
same "the saved steps" "step-00000003 step-00000006 step-00000008" \
    "$(cd "$folder/saves" && echo *)"

# ---- the resolved configuration starts the same run again

expect 0 train "$folder/whole/config.json" --logging.run_dir="$folder/again" --logging.measure_peak=false \
    --checkpoint.save_dir="$folder/saves_again"
same "losses of the run that its config.json starts" "$(losses whole)" "$(losses again)"
expect 0 train "$folder/whole/config.json" --checkpoint.resume=auto --training.total_train_steps=9 \
    --logging.run_dir="$folder/further" --logging.measure_peak=false
says err 'step-00000008 from step 8'

# ---- every third step on the console, and the last one; all in the file

train 0 third --logging.log_frequency=3
same "the steps on the console" "3 6 8" "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out" | xargs)"
same "the steps in the file" 8 "$(grep -c '"loss"' "$folder/third/metrics.jsonl")"

# ---- a vocabulary that the data's tokenizer of 300 does not fill is told, but not its padding

train 0 padded --training.total_train_steps=1 --model.vocab_size=1324
check "no word of padding" bash -c "! grep -q 'different tokens' '$folder/err'"
train 0 sparse --training.total_train_steps=1 --model.vocab_size=1325
says err 'cyclotron: the data has 300 different tokens, the model 1325: the others are never met
  hint: model.vocab_size=384'

# ---- without the machine's peak

train 0 no_peak --logging.measure_peak=false
says out '| MFU: - |'
same "lines without mfu" 8 "$(grep -c '"mfu":null,"mfu_causal":null,' "$folder/no_peak/metrics.jsonl")"
same "losses without mfu" "$(losses whole | sed 's/"params_hash[^}]*//')" \
    "$(losses no_peak | sed 's/"params_hash[^}]*//')"

# ---- stopped and resumed, bit for bit

train 0 first --training.total_train_steps=5 --checkpoint.save_dir="$folder/parts"
train 0 second --checkpoint.load_path="$folder/parts" --logging.hash_frequency=4
says err "continuing $folder/parts/step-00000005 from step 5"
check "no word of later steps" bash -c "! grep -q 'earlier run' '$folder/err'"
same "steps of the resumed run" "6 7 8" "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out" | xargs)"
same "losses after a resume" "$(losses whole 6)" "$(losses second)"

# The same folder: the lines go on, those of steps that are done again are dropped.
cp -r "$folder/first" "$folder/joined"
printf '{"step":6,"tokens":1536,"loss":9}\n{"step":7,"to' >>"$folder/joined/metrics.jsonl"
train 0 joined --checkpoint.save_dir="$folder/parts" --checkpoint.resume=auto \
    --logging.hash_frequency=4
same "losses of the joined run" "$(losses whole | sed 's/"params_hash[^}]*//')" \
    "$(losses joined | sed 's/"params_hash[^}]*//')"
train 0 fresh --checkpoint.save_dir="$folder/none_yet" --checkpoint.resume=auto \
    --training.total_train_steps=2
same "steps of a fresh start" "1 2" "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out" | xargs)"
train 0 behind --checkpoint.save_dir="$folder/none_yet" --training.total_train_steps=1
says err "$folder/none_yet holds step 2 of an earlier run"

# A run that began with the weights of another goes on from its own saves, moments and all.
weights=(--checkpoint.load_path="$folder/parts" --checkpoint.load=weights
    --checkpoint.resume=auto --checkpoint.save_dir="$folder/own")
train 0 own "${weights[@]}" --training.total_train_steps=2
says err "starting with the weights of $folder/parts/step-"
train 0 own "${weights[@]}" --training.total_train_steps=3
says err "continuing $folder/own/step-00000002 from step 2"
same "steps of a run with foreign weights" "3" "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out")"

# Nothing is left to do, which is said once: the run is where it was to end, or past it.
nothing() {
    train 0 nothing --checkpoint.load_path="$folder/parts" "$@"
    is out ""
    same "how often it is told" 1 "$(grep -c 'nothing to do' "$folder/err")"
}
nothing
says err "cyclotron: step 8 is at or past training.total_train_steps 8: nothing to do"
says err "  hint: a larger training.total_train_steps goes on"
nothing --training.total_train_steps=5 --distributed.dp_size=2 --training.max_tokens=10000
says err "cyclotron: step 8 is at or past training.total_train_steps 5: nothing to do"
nothing --training.max_tokens=1000
says err "cyclotron: step 8 has trained on 2048 tokens, training.max_tokens is 1000: nothing to do"
says err "  hint: a larger training.max_tokens goes on"
# Tokens count as they were trained on, in whatever batches.
nothing --training.max_tokens=2048 --training.micro_batch_size=1 --training.total_train_steps=50
train 0 smaller --checkpoint.load_path="$folder/parts" --training.micro_batch_size=1 \
    --training.max_tokens=2304 --training.total_train_steps=50
same "steps of a smaller batch up to the tokens" "9 10 11 12" \
    "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out" | xargs)"
expect 0 metrics "$folder/smaller"
says out ',completed,'
train 0 larger --checkpoint.load_path="$folder/parts" --distributed.dp_size=2 \
    --training.max_tokens=2500 --training.total_train_steps=50
same "one step of a larger batch" "9" "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out" | xargs)"
train 0 something --checkpoint.load_path="$folder/parts" --training.total_train_steps=9
check "no such word where a step is left" bash -c "! grep -q 'nothing to do' '$folder/err'"

# A fresh start in the folder of an earlier run keeps what that one told, under another name.
"$cyclotron" metrics "$folder/first" >"$folder/table" 2>"$folder/log"
cp "$folder/first/metrics.jsonl" "$folder/five"
train 0 first --training.total_train_steps=2
says err "cyclotron: $folder/first held metrics of an earlier run; they are in metrics.jsonl.1 now"
check "the earlier run's metrics" cmp "$folder/five" "$folder/first/metrics.jsonl.1"
same "steps of the new run" "1 2" "$(losses first | sed -E 's/.*"step":([0-9]+),.*/\1/' | xargs)"
expect 0 metrics "$folder/first"
check "the table is of the new run" bash -c "! cmp -s '$folder/out' '$folder/table'"
cp "$folder/first/metrics.jsonl" "$folder/two"
train 0 first --training.total_train_steps=1 --checkpoint.save_dir="$folder/one"
says err "they are in metrics.jsonl.2 now"
check "the first run's metrics" cmp "$folder/five" "$folder/first/metrics.jsonl.1"
check "the second run's metrics" cmp "$folder/two" "$folder/first/metrics.jsonl.2"
train 0 first --training.total_train_steps=2 --checkpoint.load_path="$folder/one"
check "one that goes on says nothing" bash -c "! grep -q 'earlier run' '$folder/err'"
same "steps of the run that went on" "1 2" \
    "$(losses first | sed -E 's/.*"step":([0-9]+),.*/\1/' | xargs)"
: >"$folder/first/metrics.jsonl"
train 0 first --training.total_train_steps=1
check "nor one that finds no step" bash -c "! grep -q 'earlier run' '$folder/err'"
same "the files of the run folder" "config.json metrics.jsonl metrics.jsonl.1 metrics.jsonl.2" \
    "$(cd "$folder/first" && echo *)"

# ---- max_tokens: the step that reaches it is the last

train 0 tokens --training.max_tokens=1000
same "the last step of 1000 tokens" "4" "$(tail -n 1 "$folder/out" | sed 's/.*Step: \([0-9]*\).*/\1/')"
says out '| Tokens: 1.02K/1.00K |'
train 0 tokens --training.max_tokens=1024
same "the last step of 1024 tokens" "4" "$(tail -n 1 "$folder/out" | sed 's/.*Step: \([0-9]*\).*/\1/')"

# ---- what follows the formula in the place of what is tuned

# hash_of RUN: of the parameters after its last step.
hash_of() {
    step_value "$1" 8 params_hash
}
for dtype in fp32 bf16; do
    train 0 "tuned_$dtype" --logging.hash_frequency=8 --model.dtype=$dtype
    train 0 "unfused_$dtype" --logging.hash_frequency=8 --model.dtype=$dtype \
        --model.use_fused_adam=false
    check "a hash of $dtype" test -n "$(hash_of "tuned_$dtype")"
    same "AdamW in passes, $dtype" "$(hash_of "tuned_$dtype")" "$(hash_of "unfused_$dtype")"
done
train 0 formula --logging.hash_frequency=8 --model.use_flash_attention=false
check "attention by the formula trains as the tuned one" awk \
    -v tuned="$(step_value tuned_fp32 8 loss)" -v formula="$(step_value formula 8 loss)" \
    'BEGIN { d = tuned - formula; exit !(tuned > 1 && d < 1e-4 && d > -1e-4) }'
if ! "$cyclotron" --version | grep -q 'nothing that kernels'; then
    check "and is not the tuned one" test "$(hash_of tuned_fp32)" != "$(hash_of formula)"
fi

# ---- steps that cannot be printed

"$cyclotron" train "$folder/tiny.json" >/dev/full 2>"$folder/err"
same "the status of a run whose steps did not arrive" 1 $?
says err 'cyclotron: error: standard output: '

finish
