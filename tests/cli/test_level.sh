#!/usr/bin/env bash
# A training at the level of instructions that TEST_ISA names (all there are, without it), beside one
# of the portable operators: losses agree within rounding, and strict mode's weights to the bit.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

level=${TEST_ISA:-auto}

# last NAME MEMBER: of the last step of a run.
last() {
    tail -n 1 "$folder/$1/metrics.jsonl" | grep -oE "\"$2\": ?\"?[^,\"}]+" | sed 's/.*[:"] *//'
}

# run NAME OPTION...: trains into a folder of its own.
run() {
    local name=$1
    shift
    expect 0 train "$folder/tiny.json" --logging.run_dir="$folder/$name" "$@"
}

for dtype in fp32 bf16; do
    run $dtype-level --model.dtype=$dtype --distributed.isa="$level"
    run $dtype-ref --model.dtype=$dtype --distributed.isa=ref
    bound=$([ $dtype = fp32 ] && echo 1e-4 || echo 2e-2)
    holds "losses in $dtype" "$(last $dtype-level loss) - $(last $dtype-ref loss) < $bound && \
        $(last $dtype-ref loss) - $(last $dtype-level loss) < $bound && \
        $(last $dtype-level loss) < 5.6"
done
run strict-level --training.strict=true --logging.hash_frequency=8 --distributed.isa="$level"
run strict-ref --training.strict=true --logging.hash_frequency=8 --distributed.isa=ref
hash=$(last strict-level params_hash)
check "hash '$hash'" grep -qE '^[0-9a-f]{16}$' <<<"$hash"
check "strict weights" [ "$hash" = "$(last strict-ref params_hash)" ]

finish
