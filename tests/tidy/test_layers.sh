#!/usr/bin/env bash
# Each layer of the source includes only itself and those before it.
# shellcheck disable=SC2016 # awk's, not the shell's
set -euo pipefail
cd "$SOURCE"

layers="base device kernel comm parallel model tokenizer data optim checkpoint observe config engine train plan infer cli"

find src include -name '*.[ch]' -o -name '*.cu' | sort | xargs awk -v layers="$layers" '
    BEGIN {
        count = split(layers, name, " ")
        for (i = 1; i <= count; i++) level[name[i]] = i
    }
    FNR == 1 {
        split(FILENAME, part, "/")
        layer = part[1] == "include" ? "include" : part[2]
        if (layer != "include" && !(layer in level)) {
            printf "%s: the layer %s is not in the list of %s\n", FILENAME, layer, "tests/tidy/test_layers.sh"
            faults++
        }
    }
    /^#include "/ {
        split($2, piece, "\"")
        path = piece[2]
        if (index(path, "/") == 0) {
            if (path != "build_info.h") {
                printf "%s:%d: include \"%s\" by its path from src/\n", FILENAME, FNR, path
                faults++
            }
            next
        }
        split(path, folder, "/")
        if (layer == "include" || !(folder[1] in level) || level[folder[1]] > level[layer]) {
            printf "%s:%d: %s may not include \"%s\"\n", FILENAME, FNR, layer, path
            faults++
        }
    }
    END {
        if (NR < 1000) { print "nothing was looked at"; exit 1 }
        exit faults > 0
    }'
