#!/usr/bin/env bash
# tokenizer and data: what a user types, what comes out, and what bad input gets.

. "$(dirname "$0")/lib.sh"

text=$folder/text.txt
for i in $(seq 200); do
    printf 'In the beginning was the word %d.\n\n  and the WORD was  there\n' "$i"
done >"$text"
printf 'no newline at the end \xff\xfe' >>"$text"

expect 0 tokenizer train --vocab-size=300 --out="$folder/t.json" "$text"
says out 't.json: 300 tokens from'
is err ""
expect 0 tokenizer train --vocab-size=5000 --out="$folder/small.json" "$text"
says err 'merges ran out: '
says err ' tokens of the 5000 asked for'
expect 2 tokenizer train --vocab-size=100 --out="$folder/never.json" "$text"
says err 'vocab-size'
expect 2 tokenizer train --vocab-size=300 --out="$folder/never.json" "$folder/absent.txt" "$folder/gone"
says err 'absent.txt: No such file or directory'
says err 'gone: No such file or directory'
[ ! -e "$folder/never.json" ] || { echo "FAIL: never.json was written"; failures=$((failures + 1)); }

# Lines give lines, an array gives the text as it was.
"$cyclotron" tokenizer encode "$folder/t.json" "$text" >"$folder/lines"
[ "$(wc -l <"$folder/lines")" = 601 ] || { echo "FAIL: not one line a line"; failures=$((failures + 1)); }
"$cyclotron" tokenizer decode "$folder/t.json" <"$folder/lines" >"$folder/back"
{ cat "$text" && echo; } | cmp -s - "$folder/back" || { echo "FAIL: lines differ"; failures=$((failures + 1)); }
"$cyclotron" tokenizer encode --json "$folder/t.json" <"$text" >"$folder/array"
"$cyclotron" tokenizer decode "$folder/t.json" "$folder/array" | cmp -s - "$text" ||
    { echo "FAIL: the array gives another text"; failures=$((failures + 1)); }
printf 'a<|endoftext|>' >"$folder/special"
expect 0 tokenizer encode --json "$folder/t.json" "$folder/special"
is out '[65, 0]'
cp "$folder/out" "$folder/ids"
expect 0 tokenizer decode --skip-special "$folder/t.json" "$folder/ids"
is out 'a'
printf '[7] 8' >"$folder/ids"
expect 1 tokenizer decode "$folder/t.json" "$folder/ids"
says err "something follows the array of token ids: '8'"
printf '[7, 8' >"$folder/ids"
expect 1 tokenizer decode "$folder/t.json" "$folder/ids"
says err 'the array of token ids has no end'
for command in encode decode; do
    expect 2 tokenizer "$command" "$folder/absent.json" "$folder/absent.txt"
    says err 'absent.json: No such file or directory'
    says err 'absent.txt: No such file or directory'
done
printf '7 x' >"$folder/ids"
expect 1 tokenizer decode "$folder/t.json" "$folder/ids"
says err "'x' is no token id"
printf '300' >"$folder/ids"
expect 2 tokenizer decode "$folder/t.json" "$folder/ids"
says err 'token 0 is 300'

# Damaged and foreign tokenizers.
size=$(stat -c %s "$folder/t.json")
for tenth in 0 1 2 3 4 5 6 7 8 9; do
    head -c $((size * tenth / 10)) "$folder/t.json" >"$folder/cut.json"
    expect 1 tokenizer encode "$folder/cut.json" "$text"
    says err 'cut.json: line '
done
sed 's/"BPE"/"Unigram"/' "$folder/t.json" >"$folder/foreign.json"
expect 1 tokenizer encode "$folder/foreign.json" "$text"
says err 'foreign.json: model.type is Unigram'
says err 'hint: only byte-level BPE'

# Shards.
expect 0 data prepare --tokenizer="$folder/t.json" --out="$folder/shards" --threads=2 "$text"
says out 'tokens of 2 bytes, 1 documents'
expect 0 data inspect "$folder/shards"
says out 'shards, whole'
expect 0 data inspect "$folder/shards" --json
says out '"documents": 1, "text_bytes": '
is err ""
cp "$folder/out" "$folder/inspected"
expect 0 data prepare --tokenizer="$folder/t.json" --out="$folder/again" --json "$text"
is err ""
for field in tokens documents text_bytes shards; do
    wanted=$(grep -oE "\"$field\": [0-9]+" "$folder/inspected")
    says out "$wanted"
done
expect 2 data prepare --tokenizer="$folder/t.json" --out="$folder/shards" "$text"
says err 'is there already'
printf '\xff' | dd of="$folder/shards/shard-00000.tokens" bs=1 seek=71 conv=notrunc 2>/dev/null
expect 1 data inspect "$folder/shards"
says err 'shard-00000.tokens: the tokens have check'
touch "$folder/x.parquet" "$folder/empty.jsonl"
for file in x.parquet shards/shard-00000.tokens; do
    expect 2 data prepare --tokenizer="$folder/t.json" --out="$folder/other" "$folder/$file"
    says err ".${file##*.} files are not read as text"
done
expect 2 data inspect "$text"
says err 'text.txt is neither a folder of token shards nor a .bin file'
expect 2 data prepare --tokenizer="$folder/t.json" --out="$folder/other" "$folder/empty.jsonl"
says err 'there is no document'
[ ! -e "$folder/other" ] || { echo "FAIL: a folder without shards"; failures=$((failures + 1)); }
expect 2 data prepare --tokenizer="$folder/no.json" --out="$folder/other" "$folder/absent.txt"
says err 'no.json: No such file or directory'
says err 'absent.txt: No such file or directory'
printf '\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n' >"$folder/marked.jsonl"
expect 0 data prepare --tokenizer="$folder/t.json" --out="$folder/marked" "$folder/marked.jsonl"
says out 'marked: 4 tokens of 2 bytes, 2 documents'
expect 2 data prepare --tokenizer="$folder/t.json" --end-token=none --out="$folder/other" "$text"
says err '--end-token=none'

# Ctrl-C in the middle leaves nothing.
mkdir "$folder/stopped"
mkfifo "$folder/slow.txt"
"$cyclotron" data prepare --tokenizer="$folder/t.json" --out="$folder/stopped/shards" \
    "$folder/slow.txt" >"$folder/out" 2>"$folder/err" </dev/null &
running=$!
{
    for _ in 1 2 3 4 5; do cat "$text" "$text" "$text" "$text" "$text" "$text"; done
    sleep 0.3
    kill -TERM "$running"
    cat "$text"
} >"$folder/slow.txt"
wait "$running"
status=$?
[ "$status" = 143 ] || { echo "FAIL: stopped with $status, wanted 143"; failures=$((failures + 1)); }
[ -z "$(ls -A "$folder/stopped")" ] || { echo "FAIL: a stop left files"; failures=$((failures + 1)); }

finish
