#!/usr/bin/env bash
# Installs into a folder of its own, moves it elsewhere, and builds a program against it as others
# would: with pkg-config and with CMake, as C and as C++, with gcc and clang.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
if [ -n "${SANITIZED:-}" ]; then
    echo "a library with a sanitizer in it is for no other program"
    exit 77
fi
set -e
build=$(dirname "$cyclotron")
cmake --install "$build" --prefix "$folder/first" >"$folder/log"
mv "$folder/first" "$folder/prefix" # nothing may know where it was installed
prefix=$folder/prefix

[ "$("$prefix/bin/cyclotron" --version)" = "$("$cyclotron" --version)" ]
[ -s "$prefix/share/doc/cyclotron/LICENSE" ]
"$cyclotron" man | cmp - "$prefix/share/man/man1/cyclotron.1"
"$cyclotron" completion bash |
    cmp - "$prefix/share/bash-completion/completions/cyclotron"
for header in "$source_folder"/include/cyclotron/*.h; do
    cmp "$header" "$prefix/include/cyclotron/$(basename "$header")"
done

pc=$(dirname "$(find "$prefix" -name cyclotron.pc)")
export PKG_CONFIG_PATH=$pc
version=$(pkg-config --modversion cyclotron)
"$cyclotron" --version | head -n 1 | grep -qF "$version"

# Every installed header, and some calls.
{
    for header in "$prefix"/include/cyclotron/*.h; do
        printf '#include <cyclotron/%s>\n' "$(basename "$header")"
    done
    cat <<'PROGRAM'
#include <stdio.h>
#include <string.h>

int main(void)
{
    cy_dtype dtype;
    if (!cy_dtype_from_name(&dtype, "bfloat16")) return 1;
    if (strcmp(cy_status_name(CY_ERR_CORRUPT), "corrupt") != 0) return 2;
    printf("%s of %zu bytes\n", cy_dtype_name(dtype), cy_dtype_size(dtype));
    return 0;
}
PROGRAM
} >"$folder/program.c"
cp "$folder/program.c" "$folder/program.cpp"

try() {
    [ "$("$1")" = "bf16 of 2 bytes" ]
    echo "ok: $2"
}

for pair in "gcc program.c" "g++ program.cpp" "clang program.c" "clang++ program.cpp"; do
    read -r compiler file <<<"$pair"
    if ! command -v "$compiler" >/dev/null; then
        echo "skipped: no $compiler here"
        continue
    fi
    # shellcheck disable=SC2046 # flags are words
    "$compiler" -Wall -Wextra -Werror -o "$folder/by_$compiler" "$folder/$file" \
        $(pkg-config --cflags --libs cyclotron)
    try "$folder/by_$compiler" "pkg-config, $compiler"

    mkdir -p "$folder/cmake_$compiler"
    case $compiler in
    *++) language=CXX ;;
    *) language=C ;;
    esac
    cat >"$folder/cmake_$compiler/CMakeLists.txt" <<LISTS
cmake_minimum_required(VERSION 3.20)
project(other LANGUAGES $language)
find_package(cyclotron $version REQUIRED)
add_executable(other $folder/$file)
target_link_libraries(other PRIVATE cyclotron::cyclotron)
LISTS
    cmake -S "$folder/cmake_$compiler" -B "$folder/cmake_$compiler/build" \
        -DCMAKE_PREFIX_PATH="$prefix" -D"CMAKE_${language}_COMPILER=$compiler" >"$folder/log"
    cmake --build "$folder/cmake_$compiler/build" >"$folder/log" || { cat "$folder/log"; exit 1; }
    try "$folder/cmake_$compiler/build/other" "CMake, $compiler"
done

# The examples, and what they do, against the installed library.
cmake -S "$source_folder/examples" -B "$folder/examples" -DCMAKE_PREFIX_PATH="$prefix" >"$folder/log"
cmake --build "$folder/examples" >"$folder/log" || { cat "$folder/log"; exit 1; }
EXAMPLES=$folder/examples bash "$source_folder/tests/cli/test_examples.sh"

# A later minor version may break the interface: it must not be taken.
sed -i "s/find_package(cyclotron $version/find_package(cyclotron 99.0/" \
    "$folder/cmake_gcc/CMakeLists.txt"
if cmake -S "$folder/cmake_gcc" -B "$folder/none" -DCMAKE_PREFIX_PATH="$prefix" \
    >"$folder/log" 2>&1; then
    echo "version 99.0 was found"
    exit 1
fi
