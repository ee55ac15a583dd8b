#!/usr/bin/env bash
# at_level.sh LEVEL PROGRAM...: runs a test as on a processor of that level (ref, avx2...): what the
# test opens as "auto" is that level, and oneDNN is held to it. Skipped where this processor, or what
# the build is held to (-DCY_MAX_ISA), is less.
level=$1
shift
if ! said=$("$CYCLOTRON" doctor --quick --isa="$level" 2>&1); then
    echo "$said"
    grep -qE 'this processor does not support it|this build is held to' <<<"$said" && exit 77
    exit 1
fi
grep -E '^ok +(kernels|oneDNN|fp32 is|bf16 is|fp16 is) ' <<<"$said"
TEST_ISA=$level exec "$@"
