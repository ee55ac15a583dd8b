#!/usr/bin/env bash
# As test_processor_aarch64_slow.sh, built for release and with the tests of the kernels under qemu, but for
# one that took more than 15 minutes there.
cd "${SOURCE:-.}/tests/kernel" || exit 1
TESTS=$(for file in test_*.c; do
    case $file in *_slow.c | *_long.c | test_matmul_tuned.c) ;; *) echo "test_kernel_${file:5:-2}" ;; esac
done | xargs)
export TESTS AARCH64_TYPE=Release
cd - >/dev/null && exec bash "${SOURCE:-.}/tests/golden/test_processor_aarch64_slow.sh"
