#!/usr/bin/env bash
# The golden hashes of strict mode by a build of the other compiler: clang where this one is gcc's.
. "${SOURCE:-.}/tests/cli/lib.sh"
# shellcheck source=strict_hashes.sh
. "$source_folder/tests/golden/strict_hashes.sh"

skip() {
    echo "skipped: $1"
    exit 77
}

[ -z "${SANITIZED:-}" ] || skip "the other compiler has no part in a sanitizer's build"
expect 0 --version
case $(cat "$folder/out") in
*"compiler: GNU"*) other=clang ;;
*) other=gcc ;;
esac
command -v $other >/dev/null || skip "no $other here"

# In the folder of this build, without what strict mode does not use: a second run builds what has
# changed.
build=$PWD/$other
other_build() {
    cmake -S "$source_folder" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=$other \
        -DCY_TESTS=OFF -DCY_WITH_MPI=OFF -DCY_WITH_DNNL=OFF &&
        cmake --build "$build" -j "$(nproc)" --target cyclotron
}
if ! other_build >"$folder/log" 2>&1; then
    tail -n 20 "$folder/log"
    exit 1
fi
strict_start
cyclotron=$build/cyclotron
expect 0 --version
if grep -q "compiler: GNU" "$folder/out" && [ $other = clang ]; then
    echo "FAIL: the other build is by the same compiler"
    failures=$((failures + 1))
fi
for name in $(strict_names); do strict_compare "$name"; done
exit $((failures > 0))
