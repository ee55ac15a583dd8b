#!/usr/bin/env bash
# Strict mode has the bits of the golden file at every level of this processor.
. "${SOURCE:-.}/tests/cli/lib.sh"
# shellcheck source=strict_hashes.sh
. "$source_folder/tests/golden/strict_hashes.sh"

strict_start
for name in $(strict_names); do strict_compare "$name"; done
if [ "${STRICT_WRITE:-no}" = yes ]; then exit; fi

# The comparison itself: another seed has other bits.
got=$(strict_train other_seed --training.seed=43)
check "another seed is another training" test -n "$got"
if grep -qF "$got" "$hashes"; then
    echo "FAIL: another seed has the hashes of the file"
    failures=$((failures + 1))
fi

tested=
for level in ref avx2 avx512 avx512_bf16 amx neon; do
    if ! "$cyclotron" train "$folder/strict.json" --logging.run_dir="$folder/$level" \
        --distributed.isa=$level --training.total_train_steps=1 >"$folder/out" 2>"$folder/err"; then
        check "level $level is refused because it is not there" grep -qE \
            'this processor does not support it|this build is held to' "$folder/err"
        continue
    fi
    tested="$tested $level"
    for name in $(strict_names); do strict_compare "$name" --distributed.isa=$level; done
done
echo "levels:$tested"
case $tested in
*" ref"*) ;;
*)
    echo "FAIL: the portable level was not tested"
    failures=$((failures + 1))
    ;;
esac
exit $((failures > 0))
