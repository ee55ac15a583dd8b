#!/usr/bin/env bash
# The program on aarch64: built by Debian's cross compiler and run by qemu, with two of the tests of
# the kernels. test_processor_aarch64_long.sh runs all of these, in a build for release; here it is one with
# -O2: -O3 takes the compiler three times as long for the tables of strict mode.
. "${SOURCE:-.}/tests/cli/lib.sh"
# shellcheck source=emulated.sh
. "$source_folder/tests/golden/emulated.sh"

tests=${TESTS:-"test_kernel_blocks test_kernel_compress"}
sysroot=$source_folder/build-aarch64/sysroot
[ "$(uname -m)" != aarch64 ] || skip "this build is for aarch64: the other tests are about it"
[ -z "${SANITIZED:-}" ] || skip "the other compiler has no part in a sanitizer's build"
command -v qemu-aarch64 >/dev/null || skip "no qemu-aarch64: qemu-user is not installed"
command -v aarch64-linux-gnu-gcc >/dev/null || skip "no gcc-aarch64-linux-gnu"
[ -e "$sysroot/complete" ] || skip "no aarch64 libraries: scripts/setup_cross.sh fetches them"

# In the folder of this build: a second run builds what has changed.
type=${AARCH64_TYPE:-Sample}
build=$PWD/aarch64-${type,,}
# shellcheck disable=SC2086 # words
cross_build() {
    cmake -S "$source_folder" -B "$build" -DCMAKE_BUILD_TYPE="$type" \
        -DCMAKE_C_FLAGS=-O2 -DCMAKE_TOOLCHAIN_FILE="$source_folder/cmake/aarch64.cmake" -DCY_SYSROOT="$sysroot" &&
        cmake --build "$build" -j "$(nproc)" --target cyclotron $tests
}
if ! cross_build >"$folder/log" 2>&1; then
    tail -n 20 "$folder/log"
    exit 1
fi

for test in $tests; do
    qemu-aarch64 -L "$sysroot" "$build/tests/$test" >"$folder/log" 2>&1 || {
        echo "FAIL: $test"
        grep -A 3 -i 'error\|failed' "$folder/log" | head -n 20
        failures=$((failures + 1))
    }
done

emulate "$build/cyclotron" qemu-aarch64 -L "$sysroot"
expect 0 --version
says out 'processor: neon'
native='' strict_start # the tokenizer, too, is made there
expect 0 doctor
says out 'neon'
for name in $(strict_names); do strict_compare "$name"; done
fast_training fp32 bf16
exit $((failures > 0))
