#!/usr/bin/env bash
# Numbers, flags and names on the command line: what is read, to the last digit, and what is not.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# How a count was read shows in what a tokenizer of two bytes of text cannot have.
printf 'ab' >"$folder/ab.txt"
train=(tokenizer train --out="$folder/t.json" --threads=1 "$folder/ab.txt")
wants='a whole number from 257 to 16777216 is wanted'
hint="  hint: 'cyclotron tokenizer train --help' shows how it is called"

# reads TEXT COUNT: the count that a text stands for.
reads() {
    expect 0 "${train[@]}" --vocab-size="$1"
    is err "merges ran out: 258 tokens of the $2 asked for"
}
reads 259 259
reads 1k 1000
reads 1K 1000
reads 0.3k 300
reads 2.5k 2500
reads 1M 1000000
reads 0.001G 1000000
reads 1e3 1000
reads 2.59e2 259
reads 0x200 512
reads 259.0 259
reads +300 300
reads 16777216 16777216

# refuses TEXT...: each of them is not one.
refuses() {
    for text in "$@"; do
        expect 2 "${train[@]}" --vocab-size="$text"
        is err "cyclotron: error: --vocab-size=$text: $wants
$hint"
    done
}
for text in nan inf infinity 1x; do
    expect 2 metrics none --skip=$text
    says err "--skip=$text: a whole number from 0"
done
refuses 256 16777217 16.8M -300 259.5 0.2595k 1kk 1kM 1g 1m k '' ' 300' '300 ' 300x nan inf 1e400 \
    9007199254740993.0 9e15M 99999999999999999999

# Numbers: both ends of the range are inside.
schedule=(schedule --engine=afab --stages=1 --microbatches=1)
for forward in 0.001 1000000 1e6; do
    expect 0 "${schedule[@]}" --forward="$forward"
done
for forward in 0.00099 1000000.1 nan inf -1 1x '' ' 1' '1 '; do
    expect 2 "${schedule[@]}" --forward="$forward"
    is err "cyclotron: error: --forward=$forward: a number from 0.001 to 1000000 is wanted
  hint: 'cyclotron schedule --help' shows how it is called"
done

# Flags, choices, and what a wrong name swallows: its value, but no argument that is needed.
for flag in true 1 false 0; do
    expect 0 "${train[@]}" --vocab-size=258 --json=$flag
done
expect 0 "${train[@]}" --vocab-size=258 --json
check 'JSON of a training' grep -qE \
    '^\{"vocab_size": 258, "text_bytes": 2, "seconds": (0|[1-9][0-9]*)(\.[0-9]+)?(e-[0-9]{2})?\}$' "$folder/out"
is err ""
for flag in yes TRUE 2 ''; do
    expect 2 "${train[@]}" --vocab-size=258 --json="$flag"
    is err "cyclotron: error: --json=$flag: true or false is wanted
$hint"
done
for style in gpt llama3x '' 'gpt2|llama3' '|'; do
    expect 2 "${train[@]}" --vocab-size=258 --style="$style"
    is err "cyclotron: error: --style=$style: one of gpt2|llama3|qwen2|smollm is wanted
$hint"
done
expect 2 "${train[@]}" --vocabsize=258
is err "cyclotron: error: cyclotron tokenizer train has no option --vocabsize
  hint: did you mean --vocab-size?
cyclotron: error: cyclotron tokenizer train needs --vocab-size
$hint"
expect 2 "${train[@]}" --vocab-size=258 --unheard-of value
is err "cyclotron: error: cyclotron tokenizer train has no option --unheard-of
$hint"
expect 2 tokenizer train --vocab-size=258 --unheard-of "$folder/ab.txt" --out=x
is err "cyclotron: error: cyclotron tokenizer train has no option --unheard-of
$hint"
expect 2 "${train[@]}" --vocab-size=258 -j
is err "cyclotron: error: cyclotron tokenizer train has no option --j
$hint"
expect 2 "${train[@]}" --vocab-size=258 --field
is err "cyclotron: error: --field needs a value
$hint"
expect 2 "${train[@]}" --vocab-size --json
is err "cyclotron: error: --vocab-size needs a value
cyclotron: error: cyclotron tokenizer train needs --vocab-size
$hint"
expect 2 tokenizer train
is err "cyclotron: error: cyclotron tokenizer train needs FILE...
cyclotron: error: cyclotron tokenizer train needs --vocab-size
cyclotron: error: cyclotron tokenizer train needs --out
$hint"
expect 2 tokenizer encode a b c
is err "cyclotron: error: cyclotron tokenizer encode: 'c' is one argument too many
  hint: 'cyclotron tokenizer encode --help' shows how it is called"
long=$(printf 'x%.0s' {1..200})
expect 2 "${train[@]}" --vocab-size=258 "--$long"
is err "cyclotron: error: cyclotron tokenizer train has no option --${long:0:127}
$hint"
for name in vocab_size vocab-size; do
    expect 0 "${train[@]}" --"$name"=258
done
expect 2 "${train[@]}" --vocab-size=258 --vocab_size=259
is err "cyclotron: error: --vocab-size is given twice
$hint"

finish
