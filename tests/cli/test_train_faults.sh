#!/usr/bin/env bash
# cyclotron train: what bad input and bad luck get.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# ---- the request: all faults at once, status 2, nothing is written

expect 2 train "$folder/tiny.json" --training.learnig_rate=1 --modle.hidden_size=3 \
    --training.micro_batch_size=0 --logging.run_dir="$folder/never"
is out ""
says err 'training.learnig_rate'
says err 'did you mean'
says err 'modle'
says err 'training.micro_batch_size = 0'
check "no run folder of a refused run" test ! -e "$folder/never"

expect 2 train "$folder/tiny.json" --model.vocab_size=299 --logging.run_dir="$folder/never"
says err 'model.vocab_size = 299'
says err '300 tokens'
expect 2 train "$folder/tiny.json" --dataset.name="$folder/no_such.txt"
says err "$folder/no_such.txt"
ln -s loop "$folder/loop"
for key in dataset.name dataset.tokenizer checkpoint.load_path; do
    train 2 never "--$key=$folder/loop"
    says err "$key = \"$folder/loop\": look at $folder/loop: Too many levels of symbolic links"
done
check "no run folder of a refused run" test ! -e "$folder/never"

train 2 never --dataset.validation_fraction=0.0001 --logging.eval_frequency=2
says err 'the validation part has '
says err 'a sample of seq_length 32 needs 33'
check "no run folder of a refused run" test ! -e "$folder/never"
train 2 never --training.global_batch_size=5
is err 'cyclotron: error: training.global_batch_size = 5: micro_batch_size 4 x dp_size 1 = 4 does not divide it
  hint: 4 or 8 would do'
train 2 never --training.total_train_steps=x
is err 'cyclotron: error: training.total_train_steps = "x": a whole number of at least 1 is wanted'

# Token files that do not say their vocabulary are held to the model's.
head -c 4000 /dev/zero | tr '\0' '\1' >"$folder/high.bin" # each token is 257
train 0 tokens --dataset.name="$folder/high.bin" --dataset.tokenizer= --training.total_train_steps=1
train 1 tokens --dataset.name="$folder/high.bin" --dataset.tokenizer= --model.vocab_size=257
says err 'high.bin: token '
says err ' is 257, the vocabulary has 257'

# ---- a loss or gradient that is not finite: step and tensor, status 1, the last save stands

train 0 before --training.total_train_steps=2 --checkpoint.save_dir="$folder/good"
train 1 after --training.learning_rate=10 --training.warmup_steps=0 --training.total_train_steps=400 \
    --training.lr_schedule=constant --training.lr_decay_steps=null \
    --checkpoint.load_path="$folder/good" --checkpoint.save_dir="$folder/good"
check "step and tensor of what is not finite" \
    grep -qE 'error: step [0-9]+: .*first tensor.*not finite: (model\.|lm_head)' "$folder/err"
same "the last good save" "step-00000002" "$(cd "$folder/good" && echo *)"

# ---- damaged files: named, status 1

cp -r "$folder/good/step-00000002" "$folder/cut"
file=$(find "$folder/cut" -name '*.safetensors' | head -n 1)
truncate -s -100 "$file"
train 1 damaged --checkpoint.load_path="$folder/cut"
says err "$(basename "$file")"
cp -r "$folder/good/step-00000002" "$folder/flipped"
file=$(find "$folder/flipped" -name '*.safetensors' | head -n 1)
printf '\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 20)) conv=notrunc 2>"$folder/log"
for ranks in 1 2; do
    train 1 damaged --checkpoint.load_path="$folder/flipped" --distributed.dp_size="$ranks"
    says err "$(basename "$file")"
    says err '  hint: checkpoint.load_path = "FOLDER/step-..." takes another step'
done
cp -r "$folder/good/step-00000002" "$folder/foreign"
printf '{"what":1}' >"$folder/foreign/manifest.json"
train 1 damaged --checkpoint.load_path="$folder/foreign"
says err 'manifest.json'
# A checkpoint has the tokenizer that the run began with, whatever became of its file.
cp "$folder/tokenizer.json" "$folder/gone.json"
(until [ -s "$folder/went/metrics.jsonl" ]; do sleep 0.01; done
    echo '{}' >"$folder/gone.json") &
train 0 went --dataset.tokenizer="$folder/gone.json" --checkpoint.save_dir="$folder/went_saves" \
    --training.total_train_steps=200
wait
check "the file was changed" grep -q '^{}$' "$folder/gone.json"
check "the tokenizer of the checkpoint" \
    cmp "$folder/tokenizer.json" "$folder/went_saves/step-00000200/tokenizer.json"
head -c 1000 "$folder/tokenizer.json" >"$folder/cut.json"
train 1 damaged --dataset.tokenizer="$folder/cut.json"
says err "$folder/cut.json"
mkdir "$folder/shards"
"$cyclotron" data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/shards" \
    "$folder/text.txt" >"$folder/log" 2>&1 || exit 1
file=$(find "$folder/shards" -type f ! -name '*.json' -size +0 | sort | head -n 1)
truncate -s -3 "$file"
train 1 damaged --dataset.name="$folder/shards"
says err "$(basename "$file")"

train 2 damaged --checkpoint.load_path="$file"
is err "cyclotron: error: checkpoint.load_path = \"$file\": is a file, not a folder
  hint: give a step's folder, or the save_dir that holds them"

# ---- a checkpoint that is not for this run: status 2 with every difference, or 1 where it
# cannot be read

train 2 damaged --checkpoint.load_path="$folder/good/step-00000002" --model.hidden_size=64 \
    --model.num_hidden_layers=3 --model.rope_theta=5000 --model.tie_word_embeddings=false
says err 'is of another model: 5 differences'
says err 'hidden_size: there 32, here 64'
says err 'num_hidden_layers: there 2, here 3'
says err 'rope_theta: there 10000, here 5000'
says err 'tie_word_embeddings: there true, here false'
train 2 damaged --checkpoint.load_path="$folder/good" --distributed.tp_size=3
says err 'distributed.tp_size = 3: does not divide model.num_attention_heads 4'
train 2 damaged --checkpoint.load_path="$folder/good" --distributed.pp_size=3
says err 'pp_size'
cp -r "$folder/good/step-00000002" "$folder/newer"
sed -i 's/"format_version": 1/"format_version": 2/' "$folder/newer/manifest.json"
train 1 damaged --checkpoint.load_path="$folder/newer"
says err 'format version 2, this program reads version 1'
says err 'a newer cyclotron wrote it'
train 2 damaged --checkpoint.load_path="$folder/good" --model.rope_theta=5000
says err 'is of another model: 1 difference: rope_theta: there 10000, here 5000'
cp -r "$folder/good/step-00000002" "$folder/missing"
rm "$folder/missing/optimizer-00000.safetensors"
train 1 damaged --checkpoint.load_path="$folder/missing"
says err 'optimizer-00000.safetensors is missing'
mkdir -p "$folder/nameless/step-00000002"
cp "$folder/good/step-00000002/weights-00000.safetensors" "$folder/nameless/step-00000002"
train 2 damaged --checkpoint.load_path="$folder/nameless"
says err 'holds no checkpoint: its 1 step-N folder has no manifest.json'

# The newest checkpoint is a link to a disk that is not mounted: an older one does not stand for it.
cp -r "$folder/good" "$folder/linked"
ln -s ../unmounted/step-00000004 "$folder/linked/step-00000004"
train 1 damaged --checkpoint.save_dir="$folder/linked" --checkpoint.resume=auto
is err "cyclotron: error: $folder/linked/step-00000004 is a symbolic link that leads nowhere: it may be the newest checkpoint
  hint: mount the disk that it leads to, or remove the link"
mkdir "$folder/unmounted"
mv "$folder/linked/step-00000002" "$folder/unmounted/step-00000004"
train 0 linked --checkpoint.save_dir="$folder/linked" --checkpoint.resume=auto
says err "continuing $folder/linked/step-00000004 from step 2"

# The folder of a run is told from a checkpoint, by every command.
train 0 whole --checkpoint.save_dir="$folder/elsewhere" --training.total_train_steps=2
train 2 damaged --checkpoint.load_path="$folder/whole"
says err "$folder/whole is the folder of a run, not a checkpoint"
says err "the run saves its checkpoints in $folder/elsewhere"
expect 2 checkpoint verify "$folder/whole"
says err "the folder of a run"
expect 0 checkpoint verify "$folder/elsewhere"
train 0 whole --training.total_train_steps=2
expect 2 checkpoint inspect "$folder/whole"
says err 'the run saves no checkpoints'
check "no run folder of these" test ! -e "$folder/damaged/metrics.jsonl"

# ---- the folder that relative paths begin in is deleted under a run: nothing can be made there again

mkdir "$folder/here"
(cd "$folder/here" && exec "$(realpath "$cyclotron")" train "$folder/tiny.json" \
    --checkpoint.save_dir=saves --logging.run_dir=run --training.total_train_steps=1000000) \
    >"$folder/out" 2>"$folder/err" &
process=$!
for _ in $(seq 1200); do
    [ "$(grep -c 'Step:' "$folder/out")" -ge 3 ] && break
    sleep 0.05
done
kill -STOP "$process" # or it would make folders again while they are removed
until grep -q '^State:[[:space:]]*T' "/proc/$process/status" || ! kill -0 "$process" 2>/dev/null; do
    sleep 0.01
done
rm -rf "$folder/here"
kill -TERM "$process"
kill -CONT "$process"
wait "$process"
same "status of a run whose working directory was deleted" 1 $?
says err 'make folder saves: the working directory, to which the path is relative, was deleted'

# ---- a save for which there is no memory is not done, the run goes on, and the next one is

if [ -e "${FAILING_MEMORY:-}" ] && command -v prlimit >/dev/null; then # sanitizers have an own allocator
    "$cyclotron" train "$folder/tiny.json" --checkpoint.save_dir="$folder/tight" \
        --training.total_train_steps=1000000 >"$folder/out" 2>"$folder/err" &
    process=$!
    for _ in $(seq 1200); do
        [ "$(grep -c 'Step:' "$folder/out")" -ge 3 ] && break
        sleep 0.05
    done
    prlimit --pid "$process" --data=1:
    kill -USR1 "$process"
    for _ in $(seq 1200); do
        grep -q 'was not saved' "$folder/err" || ! kill -0 "$process" 2>/dev/null && break
        sleep 0.05
    done
    prlimit --pid "$process" --data=unlimited: 2>"$folder/log"
    kill -TERM "$process"
    wait "$process"
    same "status of a run that had no memory for one save" 143 $?
    says err 'was not saved: no memory for '
    same "saves of it" 1 "$(find "$folder/tight" -name 'step-*' | wc -l)"
fi

# ---- a umask that takes everybody's rights leaves the owner's: the run saves and goes on from there

mkdir "$folder/masked"
for steps in 2 4; do
    (umask 0777 && exec "$cyclotron" train "$folder/tiny.json" --training.total_train_steps=$steps \
        --checkpoint.save_dir="$folder/masked/saves" --logging.run_dir="$folder/masked/run" \
        --checkpoint.resume=auto >"$folder/masked/out" 2>"$folder/masked/err")
    same "status under umask 0777" 0 $?
done
same "rights of a folder under umask 0777" 700 "$(stat -c %a "$folder/masked/saves/step-00000004")"
same "rights of a file under umask 0777" 600 "$(stat -c %a "$folder/masked/run/metrics.jsonl")"

# ---- two runs that save in one folder, or write their metrics in one: the second is refused before
# it has touched what is the first's, which goes on

"$cyclotron" train "$folder/tiny.json" --checkpoint.save_dir="$folder/shared" \
    --logging.run_dir="$folder/held" --training.total_train_steps=1000000 >"$folder/holder" 2>&1 &
holder=$!
for _ in $(seq 1200); do
    [ "$(grep -c 'Step:' "$folder/holder")" -ge 1 ] && break
    sleep 0.05
done
train 2 second --checkpoint.save_dir="$folder/shared"
says err "another run saves its checkpoints in $folder/shared"
says err "process $holder"
before=$(head -n 1 "$folder/held/metrics.jsonl")
train 2 held --checkpoint.save_dir="$folder/own" --training.seed=7
says err "another run writes its metrics in $folder/held: process $holder on "
says err '  hint: give each run a logging.run_dir of its own'
check "the configuration of the first run" grep -q '"seed": 42' "$folder/held/config.json"
kill -TERM "$holder"
wait "$holder"
same "status of the first run" 143 "$?"
same "its first step" "$before" "$(head -n 1 "$folder/held/metrics.jsonl")"
train 0 held --training.total_train_steps=2 # the folder is free again
same "its save" 1 "$(find "$folder/shared" -maxdepth 1 -name 'step-*' | wc -l)"

# ---- what a killed run left of a save is removed, and said

mkdir -p "$folder/killed/.step-00000009.tmp"
train 0 after_kill --training.total_train_steps=1 --checkpoint.save_dir="$folder/killed"
says err 'removed 1 unfinished checkpoint of a dead run'
same "what is left" "step-00000001" "$(find "$folder/killed" -name '*step-*' -printf '%f\n')"

# ---- closed streams: what is printed fails, and goes into no file of the run

"$cyclotron" train "$folder/tiny.json" --logging.run_dir="$folder/closed" \
    --checkpoint.save_dir="$folder/closed_saves" <&- >&- 2>&-
same "status without an output" 1 "$?"
check "metrics of a run without an output" \
    bash -c "[ \$(grep -c '^{' '$folder/closed/metrics.jsonl') = \$(wc -l <'$folder/closed/metrics.jsonl') ]"
check "nothing but metrics" bash -c "! grep -rqa 'Step: ' '$folder/closed' '$folder/closed_saves'"
expect 0 checkpoint verify "$folder/closed_saves/step-00000008"

# ---- as many tokens to evaluate as can be asked for are all that there are

train 0 most --logging.eval_frequency=8 --logging.eval_tokens=9223372036854775807
check "a validation loss that is a number" grep -q 'step 8: validation loss [0-9]' "$folder/err"

# ---- text that is not UTF-8 trains

head -c 20000 /dev/urandom >"$folder/bytes.txt"
train 0 bytes --dataset.name="$folder/bytes.txt" --training.total_train_steps=2

# ---- no room for a save: the earlier one stands, the run goes on and says so

# limited BLOCKS ARGUMENTS...: with files of at most BLOCKS KiB.
limited() {
    local blocks=$1
    shift
    (ulimit -f "$blocks" && exec "$cyclotron" "$@") >"$folder/out" 2>"$folder/err" </dev/null
}
limited 100 train "$folder/tiny.json" --logging.run_dir="$folder/full" --checkpoint.save_frequency=2 \
    --checkpoint.load_path="$folder/good" --checkpoint.save_dir="$folder/good"
same "status of a run whose last save fails" 1 "$?"
says err 'step 4 was not saved'
says err 'step 8 was not saved'
check "what the run leaves" grep -qE "^cyclotron: error: the run has ended and step 8 was not saved: \
.*File too large; the newest complete checkpoint is $folder/good/step-00000002$" "$folder/err"
says err '  hint: checkpoint.resume = "auto" goes on from there'
says out 'Step: 8 |'
same "the save before the disk was full" "step-00000002" "$(cd "$folder/good" && echo *)"
expect 0 checkpoint verify "$folder/good/step-00000002"
limited 100 checkpoint export "$folder/good/step-00000002" --out="$folder/no_room"
same "status of an export without room" 1 "$?"
says err 'File too large'
check "no weights of it" test ! -e "$folder/no_room/model.safetensors"

# ---- memory that the system does not give: status 1, by the rank that asked, and no abort

# within KILOBYTES ARGUMENTS...: with no more addresses than that. Sanitizers reserve more themselves.
within() {
    local kilobytes=$1
    shift
    [ -z "${SANITIZED:-}" ] || kilobytes=unlimited
    (ulimit -v "$kilobytes" && exec "$cyclotron" "$@") >"$folder/out" 2>"$folder/err" </dev/null
}
for ranks in 1 2; do
    [ -z "${SANITIZED:-}" ] || break
    within 1000000 train "$folder/tiny.json" --logging.run_dir= --training.micro_batch_size=10000 \
        --distributed.dp_size="$ranks"
    same "status without memory, $ranks ranks" 1 "$?"
    same "lines of it, $ranks ranks" 2 "$(wc -l <"$folder/err")"
    who=''
    [ "$ranks" = 1 ] || who='rank [01] \([^)]*\): '
    check "who asked for how much, $ranks ranks" grep -qE \
        "^cyclotron: error: ${who}this run needs [0-9.]+ GB of addresses in this process, and ulimit -v of 0.95 GB leaves 0.[0-9]+ GB$" \
        "$folder/err"
    says err '  hint: ulimit -v unlimited; or what '
done
# So few addresses that oneDNN could not compile its kernels, or that no run fits into them: whichever
# is met first, none is a crash.
for kilobytes in 60000 75000 90000 105000 120000 150000 200000; do
    for ranks in 1 2; do
        [ -z "${SANITIZED:-}" ] || break
        [ "$kilobytes $ranks" != "200000 1" ] || continue # whether that is enough depends on the machine
        within "$kilobytes" train "$folder/tiny.json" --logging.run_dir= --distributed.dp_size="$ranks"
        same "status with $kilobytes KB of addresses, $ranks ranks" 1 "$?"
        check "what is missing, $ranks ranks" grep -qE \
            'GB of addresses in this process, and ulimit -v of 0.[0-9]+ GB leaves 0.[0-9]+ GB$' "$folder/err"
    done
done
within 600000 train "$folder/tiny.json" --logging.run_dir= --distributed.dp_size=2
same "status with enough addresses" 0 "$?"

# ---- more memory than the machine has: refused before any is mapped, once for all ranks, with the
# figure of the plan

large=("$folder/tiny.json" --training.micro_batch_size=65536 --training.seq_length=64
    --model.intermediate_size=131072)
for ranks in 1 2; do
    expect 0 plan "${large[@]}" --distributed.dp_size="$ranks"
    check "the plan's last line, $ranks ranks" grep -qE \
        '^this machine has [0-9.]+ GB free, [0-9.]+ GB less than all ranks need$' \
        <(tail -n 1 "$folder/out")
    total=$(sed -nE 's/.* all ranks in one process ([0-9.]+) GB$/\1/p' "$folder/out")
    for command in "train --logging.run_dir=" "bench step"; do
        read -ra words <<<"$command"
        # What did not refuse would end here, and not take the machine with it.
        within 8000000 "${words[@]}" "${large[@]}" --distributed.dp_size="$ranks"
        same "status of $command, $ranks ranks" 1 "$?"
        needed=$(sed -nE 's/^cyclotron: error: (rank [01] \([^)]*\): )?this run needs ([0-9.]+) GB here, and [0-9.]+ GB are free$/\2/p' \
            "$folder/err")
        holds "the figure of the plan" "${total:-0} - ${needed:-0} < 0.1 && ${total:-0} >= ${needed:-0} - 0.005"
        says err "  hint: 'cyclotron plan CONFIG' shows what takes it"
        same "lines of it, $ranks ranks" 2 "$(wc -l <"$folder/err")"
    done
done

finish
