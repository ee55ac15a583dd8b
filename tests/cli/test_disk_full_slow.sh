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

train 0 first --training.total_train_steps=2 --checkpoint.save_dir="$saves"
same "the first save" "step-00000002" "$(cd "$saves" && echo *)"
bytes=$(du -sb "$saves/step-00000002" | cut -f 1)

# full LEFT: fills the disk up to LEFT bytes.
full() {
    rm -f "$folder/disk/filler"
    local free
    free=$(($(stat -f -c '%a * %S' "$folder/disk") - $1))
    fallocate -l "$free" "$folder/disk/filler" || exit 1
}

# Nothing left, room for a part of the files, and room for all of them but the manifest.
for left in 0 $((bytes / 3)) $((bytes - 8192)); do
    full "$left"
    train 0 "full$left" --checkpoint.save_dir="$saves" --checkpoint.save_frequency=2 \
        --checkpoint.load_path="$saves"
    says err 'step 4 was not saved'
    says err 'No space left on device'
    says out 'Step: 8 |'
    same "the saves on a full disk" "step-00000002" "$(cd "$saves" && echo *)"
    check "nothing is left of saves that failed" \
        test -z "$(find "$saves" -name '.step-*' -print -quit)"
    expect 0 checkpoint verify "$saves/step-00000002"
done

rm "$folder/disk/filler"
train 0 room --checkpoint.save_dir="$saves" --checkpoint.load_path="$saves" --checkpoint.keep_last=1
same "the save once there was room" "step-00000008" "$(cd "$saves" && echo *)"
expect 0 checkpoint verify "$saves/step-00000008"
umount "$folder/disk"
finish
