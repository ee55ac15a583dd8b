# An x86-64 under qemu-user with the program of this build. Sourced by the tests of each processor.
# shellcheck shell=bash disable=SC2154 # of lib.sh

. "${SOURCE:-.}/tests/cli/lib.sh"
# shellcheck source=emulated.sh
. "$source_folder/tests/golden/emulated.sh"

# run_as PROCESSOR FEATURES: qemu's name of it and what it lacks, and what the program says of it.
run_as() {
    [ "$(uname -m)" = x86_64 ] || skip "this build is not for x86-64"
    [ -z "${SANITIZED:-}" ] || skip "a sanitizer's memory does not fit into qemu's"
    command -v qemu-x86_64 >/dev/null || skip "no qemu-x86_64: qemu-user is not installed"
    strict_start
    emulate "$cyclotron" qemu-x86_64 -cpu "$1"
    expect 0 --version
    says out "processor: $2"
    strict_compare bf16
    fast_training bf16
    exit $((failures > 0))
}
