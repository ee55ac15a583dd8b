#!/usr/bin/env bash
# Every header compiles by itself, begins with what it is, and is guarded by its own name; the
# installed ones also as C++.
set -euo pipefail
cd "$SOURCE"
compiler=${CC:-cc}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0

mapfile -t headers < <(find src include -name '*.h' | sort)
[ ${#headers[@]} -gt 10 ]

# One file that includes each twice, in one translation unit each, all in one run of the compiler.
i=0
for header in "${headers[@]}"; do
    name=${header#src/}
    name=${name#include/}
    i=$((i + 1))
    printf '#include "%s"\n#include "%s"\n' "$name" "$name" >"$work/$i.c"
    guard="CY_$(printf '%s' "$name" | tr '[:lower:]/.-' '[:upper:]___')"
    case $header in
    include/*) guard=${guard#CY_} ;;
    esac
    if ! head -n 1 "$header" | grep -qE '^// [a-z0-9_/]+\.h: '; then
        echo "$header: the first line is not '// $name: what it is'"
        faults=1
    fi
    if ! grep -qx "#ifndef $guard" "$header"; then
        echo "$header: no guard $guard"
        faults=1
    fi
done

flags=(-std=c17 -D_GNU_SOURCE -fsyntax-only -Wall -Wextra -Wpedantic -Wno-psabi -Iinclude -Isrc)
plain=() vector=()
i=0
for header in "${headers[@]}"; do
    i=$((i + 1))
    # A piece of the files that include it, which says so, is no header in this sense.
    if head -n 4 "$header" | grep -q 'Included by'; then
        continue
    fi
    case $header in
    */avx2/* | */avx512/* | */amx/*) vector+=("$work/$i.c") ;;
    */mpi* | */dnnl* | */cuda/*) ;; # need a library that may not be here; the build compiles them
    */neon/*) if [ "$(uname -m)" = aarch64 ]; then plain+=("$work/$i.c"); fi ;;
    *) plain+=("$work/$i.c") ;;
    esac
done
# What a processor's header needs is given to its folder only.
"$compiler" "${flags[@]}" "${plain[@]}" || faults=1
if [ ${#vector[@]} -gt 0 ] && [ "$(uname -m)" = x86_64 ]; then
    "$compiler" "${flags[@]}" -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx2 -mfma \
        -mf16c "${vector[@]}" || faults=1
fi
if command -v "${CXX:-c++}" >/dev/null; then
    for header in include/cyclotron/*.h; do
        printf '#include <cyclotron/%s>\n' "$(basename "$header")"
    done >"$work/all.cpp"
    "${CXX:-c++}" -fsyntax-only -Wall -Wextra -Wpedantic -Iinclude "$work/all.cpp" || faults=1
fi
exit $faults
