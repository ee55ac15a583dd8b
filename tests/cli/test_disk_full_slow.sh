#!/usr/bin/env bash
# A disk that is really full: a file system of a few MB in memory. The run goes on and says so, the
# earlier checkpoint stands, and saving works again once there is room.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

# Mounting needs a name space of its own, which needs to be root in it.
if [ "${1:-}" != inside ]; then
    if ! unshare --user --map-root-user --mount true 2>"$folder/log"; then
        echo "skipped: no mount name space here: $(cat "$folder/log")"
        exit 77
    fi
    trap - EXIT
    rm -rf "$folder"
    exec unshare --user --map-root-user --mount bash "$0" inside
fi
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"
mkdir "$folder/disk"
mount -t tmpfs -o size=1m none "$folder/disk" || exit 1
saves=$folder/disk/saves

# The root of a file system cannot be replaced by a folder that is made beside it.
expect 2 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/disk" "$folder/text.txt"
says err "$folder/disk is where a file system is mounted"
says err 'hint: name a folder in it'

train 0 first --training.total_train_steps=2 --checkpoint.save_dir="$saves"
same "the first save" "step-00000002" "$(cd "$saves" && echo *)"
bytes=$(du -sb "$saves/step-00000002" | cut -f 1)

# full LEFT: fills the disk up to LEFT bytes. A run that writes meanwhile may take some of them first.
full() {
    local free try
    for try in 1 2 3 4 5 6 7 8 9 10; do
        rm -f "$folder/disk/filler"
        free=$(($(stat -f -c '%a * %S' "$folder/disk") - $1))
        fallocate -l "$free" "$folder/disk/filler" 2>"$folder/log" && return
    done
    echo "FAIL: the disk was not filled in $try tries: $(cat "$folder/log")"
    [ -z "${process:-}" ] || kill -9 "$process"
    exit 1
}

# Nothing left, room for a part of the files, and room for all of them but the manifest.
for left in 0 $((bytes / 3)) $((bytes - 8192)); do
    full "$left"
    train 1 "full$left" --checkpoint.save_dir="$saves" --checkpoint.save_frequency=2 \
        --checkpoint.load_path="$saves"
    says err 'step 4 was not saved'
    says err 'No space left on device'
    says out 'Step: 8 |'
    says err "; the newest complete checkpoint is $saves/step-00000002"
    same "the saves on a full disk" "step-00000002" "$(cd "$saves" && echo *)"
    check "nothing is left of saves that failed" \
        test -z "$(find "$saves" -name '.step-*' -print -quit)"
    expect 0 checkpoint verify "$saves/step-00000002"
done

# The same for the folder of the run, which fills up meanwhile: it goes on, says so once, and says what
# was lost.
rm "$folder/disk/filler"
"$cyclotron" train "$folder/tiny.json" --logging.run_dir="$folder/disk/run" --logging.tensorboard=true \
    --checkpoint.save_dir="$folder/elsewhere" --training.total_train_steps=1000000 \
    >"$folder/out" 2>"$folder/err" &
process=$!
until [ "$(grep -c 'Step:' "$folder/out")" -ge 3 ]; do sleep 0.05; done
full 0
until grep -q 'metrics.jsonl cannot be written: No space left on device' "$folder/err"; do
    sleep 0.05
    kill -0 "$process" || break
done
before=$(grep -c 'Step:' "$folder/out")
until [ "$(grep -c 'Step:' "$folder/out")" -ge $((before + 100)) ]; do sleep 0.05; done
kill -TERM "$process"
wait "$process"
same "status of a run whose folder is full" 143 $?
same "reports of a full folder" 1 "$(grep -c 'metrics.jsonl cannot be written' "$folder/err")"
check "what was lost" grep -qE 'metrics.jsonl: No space left on device: [0-9]+ lines were lost' "$folder/err"
same "saves of a run whose folder is full" 1 "$(find "$folder/elsewhere" -name 'step-*' | wc -l)"

rm -f "$folder/disk/filler"
train 0 room --checkpoint.save_dir="$saves" --checkpoint.load_path="$saves" --checkpoint.keep_last=1
same "the save once there was room" "step-00000008" "$(cd "$saves" && echo *)"
expect 0 checkpoint verify "$saves/step-00000008"
umount "$folder/disk"
finish
