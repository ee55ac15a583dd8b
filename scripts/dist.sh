#!/usr/bin/env bash
# Makes cyclotron-VERSION.tar.xz of what is committed, unpacks it elsewhere and runs `make check`
# there, so that no archive goes out that does not build.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^project(cyclotron VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=cyclotron-$version
mkdir -p build
archive=$PWD/build/$name.tar.xz
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Sorted, of one time and one owner: the same commit gives the same archive.
git archive --format=tar --prefix="$name/" HEAD | xz -9e >"$archive.part"
tar -xJf "$archive.part" -C "$work"
make -C "$work/$name" check
commit=$("$work/$name/build/cyclotron" --version | sed -n 's/^commit: //p')
if [ "$commit" != "$(git rev-parse --short HEAD)" ]; then
    echo "dist: error: the program of the archive says commit $commit" >&2
    exit 1
fi
mv "$archive.part" "$archive"
sha256sum "$archive"
