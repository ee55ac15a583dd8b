#!/usr/bin/env bash
# The script behind `make demo`, with a stand-in for the program that notes how it was called: what
# the script asks of each command, what it makes of the answers and how it fails.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/scripts" "$work/examples"
cp "$SOURCE/scripts/demo.sh" "$work/scripts/"
printf '{}\n' >"$work/examples/demo.json"
# 4000 lines of 50 bytes
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%04d And it came to pass in the days of the king.\n", i }' \
    >"$work/text.txt"

cat >"$work/program" <<'PROGRAM'
#!/usr/bin/env bash
printf '%s\n' "$*" >>"$WORK/calls"
for argument in "$@"; do
    case $argument in
    --checkpoint.save_dir=*) saves=${argument#*=} ;;
    --svg=*) printf '<svg/>\n' >"${argument#*=}" ;;
    esac
done
case "$1 $2" in
"config show")
    printf '{"distributed": {\n "dp_size": 2\n},\n"model": {\n "vocab_size": 512\n},\n'
    printf '"training": {\n "micro_batch_size": 2,\n "gradient_accumulation_steps": 1,\n'
    printf ' "seq_length": 128\n}\n}\n'
    ;;
"bench step") printf '{"tok_s": 1000.5, "tok_s_min": 7}\n' ;;
"train "*)
    mkdir -p "$saves/step-00000300" "$saves/step-00000323"
    printf '[rank 0] Step: 323\n'
    exit "${TRAIN_STATUS:-0}"
    ;;
"eval "*) printf '{"loss": 2.5, "perplexity": 12.2, "bits_per_byte": 1.87654, "tokens": 99}\n' ;;
"generate "*) printf 'and the people' ;;
esac
PROGRAM
chmod +x "$work/program"

demo() {
    WORK=$work CYCLOTRON=$work/program TEXT=${TEXT:-$work/text.txt} DEMO=$work/demo \
        bash "$work/scripts/demo.sh" >"$work/out" 2>"$work/err"
}

wants() {
    grep -qF -- "$2" "$1" || { printf 'no "%s" in\n' "$2"; cat "$1"; exit 1; }
}

demo || { cat "$work/err"; exit 1; }
[ "$(tail -n 1 "$work/out")" = 'demo: 1.877 bits per byte' ] || { cat "$work/out"; exit 1; }
wants "$work/calls" "tokenizer train --vocab-size=512 --out=$work/demo/tokenizer.json"
[ "$(wc -c <"$work/demo/train.txt")" -eq 190000 ] # the tokenizer sees 95 % of the text
wants "$work/calls" "data prepare --tokenizer=$work/demo/tokenizer.json --out=$work/demo/tokens"
wants "$work/calls" "--training.total_train_steps=390" # 1000.5 * 200 / 512
wants "$work/calls" "--dataset.validation_fraction=0.05"
wants "$work/calls" "eval $work/demo/checkpoints/step-00000323 $work/demo/tokens"
wants "$work/out" "xz -9e needs 0.0"
wants "$work/out" "and the people"
[ -s "$work/demo/loss.svg" ]

# Less time than asked for is said.
if grep -q 'training gets' "$work/out"; then exit 1; fi
TRAIN_SECONDS=1000 demo
wants "$work/out" "s instead of 1000, a run that need not build gets more"

# A run that was stopped in time goes on from what it saved; one that failed does not.
TRAIN_STATUS=130 demo
wants "$work/out" "demo: 1.877 bits per byte"
if TRAIN_STATUS=1 demo; then exit 1; fi
wants "$work/err" "training ended with status 1"
if TEXT=$work/none demo; then exit 1; fi
wants "$work/err" "TEXT=$work/none cannot be read"
head -c 1000 "$work/text.txt" >"$work/short.txt"
if TEXT=$work/short.txt demo; then exit 1; fi
wants "$work/err" "has 1000 bytes"
