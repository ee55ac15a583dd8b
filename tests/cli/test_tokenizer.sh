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
expect 2 tokenizer train --vocab-size=300 --out="$folder/never.json" "$folder/absent.txt" "$folder/gone"
is err "cyclotron: error: $folder/absent.txt: No such file or directory
cyclotron: error: $folder/gone: No such file or directory"
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
is err "cyclotron: error: something follows the array of token ids: '8'"
printf ' [ 65 ,\t66,\r\n67 ]\n \n' >"$folder/ids"
expect 0 tokenizer decode "$folder/t.json" "$folder/ids"
is out 'abc'
printf ' 65 \t66\r\n\n67' >"$folder/ids"
expect 0 tokenizer decode "$folder/t.json" "$folder/ids"
is out "$(printf 'ab\n\nc')"
printf '65, 66' >"$folder/ids"
expect 1 tokenizer decode "$folder/t.json" "$folder/ids"
is err "cyclotron: error: ', 66' is no token id"
# Ids of an int, and of no int.
printf '65 2147483647' >"$folder/ids"
expect 2 tokenizer decode "$folder/t.json" "$folder/ids"
is err 'cyclotron: error: token 1 is 2147483647; the tokenizer has no such'
for id in 2147483648 -1 99999999999999999999; do
    printf '65 %s' "$id" >"$folder/ids"
    expect 1 tokenizer decode "$folder/t.json" "$folder/ids"
    is err "cyclotron: error: '$id' is no token id"
done
printf '65 abcdefghijklmnopqrstuvwxyz' >"$folder/ids"
expect 1 tokenizer decode "$folder/t.json" "$folder/ids"
is err "cyclotron: error: 'abcdefghijklmnopqrst' is no token id"
# From stdin by name and without one.
for name in '' -; do
    printf '65 66' | "$cyclotron" tokenizer decode "$folder/t.json" ${name:+"$name"} >"$folder/out"
    is out 'ab'
    printf 'ab\n\nc' | "$cyclotron" tokenizer encode "$folder/t.json" ${name:+"$name"} >"$folder/out"
    is out "$(printf '65 66\n\n67')"
done
printf '[7, 8' >"$folder/ids"
expect 1 tokenizer decode "$folder/t.json" "$folder/ids"
is err 'cyclotron: error: the array of token ids has no end'
for command in encode decode; do
    expect 2 tokenizer "$command" "$folder/absent.json" "$folder/absent.txt"
    is err "cyclotron: error: $folder/absent.json: No such file or directory
cyclotron: error: $folder/absent.txt: No such file or directory"
done
printf '7 x' >"$folder/ids"
expect 1 tokenizer decode "$folder/t.json" "$folder/ids"
is err "cyclotron: error: 'x' is no token id"
printf '300' >"$folder/ids"
expect 2 tokenizer decode "$folder/t.json" "$folder/ids"
is err 'cyclotron: error: token 0 is 300; the tokenizer has no such'

# Each style cuts words its own way: digits one by one, in threes, or all together.
for _ in $(seq 50); do printf '12345 12345\n'; done >"$folder/digits.txt"
digits() {
    "$cyclotron" tokenizer train --vocab-size=300 --style="$1" --out="$folder/style.json" \
        "$folder/digits.txt" >/dev/null 2>&1
    printf '12345' >"$folder/number"
    "$cyclotron" tokenizer encode "$folder/style.json" "$folder/number" | wc -w
}
for style in gpt2=1 llama3=2 qwen2=5 smollm=5; do
    [ "$(digits "${style%=*}")" = "${style#*=}" ] || {
        echo "FAIL: $style: $(digits "${style%=*}")"
        failures=$((failures + 1))
    }
done

# Bytes without a token are said once.
cat >"$folder/few.json" <<'END'
{"added_tokens": [{"id": 2, "content": "</s>", "special": true}],
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}
END
printf 'abxba' >"$folder/few.txt"
expect 0 tokenizer encode "$folder/few.json" "$folder/few.txt"
is out '0 1 1 0'
is err "cyclotron: warning: $folder/few.json: 254 of 256 bytes have no token and are dropped"
expect 0 data prepare --tokenizer="$folder/few.json" --out="$folder/few" --threads=1 "$folder/few.txt"
is out "$folder/few: 5 tokens of 2 bytes, 1 document, 1.00 bytes of text a token, 1 shard"
says err "cyclotron: warning: $folder/few.json: 254 of 256 bytes have no token and are dropped"
expect 0 data prepare --tokenizer="$folder/few.json" --out="$folder/few2" --json --end-token=a \
    "$folder/few.txt" "$folder/few.txt"
is out '{"tokens": 10, "documents": 2, "text_bytes": 10, "shards": 1, "token_bytes": 2}'
expect 0 data inspect "$folder/few2" --json
says out '"shards": 1, "token_bytes": 2, "end_token": 0, "tokenizer_hash": "'

# Damaged and foreign tokenizers.
size=$(stat -c %s "$folder/t.json")
for tenth in 0 1 2 3 4 5 6 7 8 9; do
    head -c $((size * tenth / 10)) "$folder/t.json" >"$folder/cut.json"
    expect 1 tokenizer encode "$folder/cut.json" "$text"
    says err 'cut.json: line '
done
sed 's/"BPE"/"Unigram"/' "$folder/t.json" >"$folder/foreign.json"
expect 1 tokenizer encode "$folder/foreign.json" "$text"
is err "cyclotron: error: $folder/foreign.json: model.type is Unigram
  hint: only byte-level BPE tokenizers can be used"

# Shards.
expect 0 data prepare --tokenizer="$folder/t.json" --out="$folder/shards" --threads=2 "$text"
says out 'tokens of 2 bytes, 1 document,'
says err 'preparing 100% '
expect 0 data inspect "$folder/shards"
says out 'shards, whole'
expect 0 data inspect "$folder/shards" --json
says out '"documents": 1, "text_bytes": '
is err ""
cp "$folder/out" "$folder/inspected"
expect 0 data prepare --tokenizer="$folder/t.json" --out="$folder/again" --json "$text"
is err ""
# Into the folder that one is in; what a process that is gone has left there is removed.
mkdir "$folder/.beside.0123456789abcdef.tmp"
echo process 1 >"$folder/.beside.0123456789abcdef.tmp/.making"
# shellcheck disable=SC2016 # the inner shell's
check "a folder without a path" bash -c 'cd "$2" && "$1" data prepare --tokenizer=t.json --out=beside few.txt \
    >beside.out 2>&1' _ "$(realpath "$cyclotron")" "$folder"
check "it is there" test -e "$folder/beside/shard-00000.tokens"
check "nothing else is" test -z "$(find "$folder" -maxdepth 1 -name '.beside*')"
for field in tokens documents text_bytes shards; do
    wanted=$(grep -oE "\"$field\": [0-9]+" "$folder/inspected")
    says out "$wanted"
done
expect 2 data prepare --tokenizer="$folder/t.json" --out="$folder/shards" "$text"
is err "cyclotron: error: $folder/shards is there already: it is not written over
  hint: name a new folder, or remove that one"
printf '\xff' | dd of="$folder/shards/shard-00000.tokens" bs=1 seek=71 conv=notrunc 2>/dev/null
expect 1 data inspect "$folder/shards"
says err 'shard-00000.tokens: the tokens have check'
touch "$folder/x.parquet" "$folder/empty.jsonl"
for file in x.parquet shards/shard-00000.tokens; do
    expect 2 data prepare --tokenizer="$folder/t.json" --out="$folder/other" "$folder/$file"
    is err "cyclotron: error: $folder/$file: .${file##*.} files are not read as text
  hint: convert it to .txt or .jsonl, which may be compressed as .gz or .zst"
done
expect 2 data inspect "$text"
is err "cyclotron: error: $text is neither a folder of token shards, a shard nor a .bin file"
expect 2 data prepare --tokenizer="$folder/t.json" --out="$folder/other" "$folder/empty.jsonl"
is err 'cyclotron: error: there is no document in what was given'
[ ! -e "$folder/other" ] || { echo "FAIL: a folder without shards"; failures=$((failures + 1)); }
expect 2 data prepare --tokenizer="$folder/no.json" --out="$folder/other" "$folder/absent.txt"
is err "cyclotron: error: $folder/no.json: No such file or directory
cyclotron: error: $folder/absent.txt: No such file or directory"
printf '\xef\xbb\xbf{"text": "a"}\n{"text": "b"}\n' >"$folder/marked.jsonl"
expect 0 data prepare --tokenizer="$folder/t.json" --out="$folder/marked" "$folder/marked.jsonl"
is out "$folder/marked: 4 tokens of 2 bytes, 2 documents, 0.50 bytes of text a token, 1 shard"
# An end token of any letters, also where it is a word of the text or looks like bytes.
printf 'это конец\nконец\n%.0s' $(seq 20) >"$folder/ru.txt"
for end in конец éé é ' b' ко; do
    expect 0 tokenizer train --vocab-size=400 --end-token="$end" --out="$folder/ru.json" "$folder/ru.txt"
    expect 0 tokenizer encode "$folder/ru.json" "$folder/ru.txt"
    "$cyclotron" tokenizer decode "$folder/ru.json" "$folder/out" >"$folder/back"
    check "text with the end token $end comes back" cmp "$folder/ru.txt" "$folder/back"
done
expect 2 data prepare --tokenizer="$folder/t.json" --out= "$text"
says err '"" is not a place'
for place in . "$folder/." "$folder/.."; do
    expect 2 data prepare --tokenizer="$folder/t.json" --out="$place" "$text"
    says err "is not a place"
done
expect 2 tokenizer train --vocab-size=300 --out= "$folder/ru.txt"
expect 2 data prepare --tokenizer="$folder/t.json" --end-token=none --out="$folder/other" "$text"
is err "cyclotron: error: --end-token=none: $folder/t.json has no such token"

# Ctrl-C in the middle leaves nothing, also where a signal comes twice, as from `timeout`.
mkdir "$folder/stopped"
mkfifo "$folder/slow.txt"
# stop_with SIGNAL STATUS OPTION...
stop_with() {
    "$cyclotron" data prepare --tokenizer="$folder/t.json" --out="$folder/stopped/shards" \
        "$folder/slow.txt" "${@:3}" >"$folder/out" 2>"$folder/err" </dev/null &
    local running=$!
    {
        for _ in 1 2 3 4 5; do cat "$text" "$text" "$text" "$text" "$text" "$text"; done
        sleep 0.3
        kill -"$1" "$running"
        sleep 0.002
        kill -"$1" "$running"
        cat "$text"
    } >"$folder/slow.txt"
    wait "$running"
    same "status of prepare after SIG$1 twice" "$2" "$?"
    check "SIG$1 leaves no files" test -z "$(ls -A "$folder/stopped")"
}
stop_with TERM 143
stop_with INT 130
stop_with TERM 143 --json

finish
