#!/usr/bin/env bash
# What README and docs/ name is there: files, folders, links, and the functions and tests in
# backticks.
# shellcheck disable=SC2016 # backticks are the pages', not the shell's
set -euo pipefail
cd "$SOURCE"
faults=0

report() {
    printf '%s\n' "$1"
    faults=$((faults + 1))
}

pages=(README.md)
while IFS= read -r page; do pages+=("$page"); done < <(find docs examples -name '*.md' | sort)

for page in "${pages[@]}"; do
    folder=$(dirname "$page")
    # Paths of the tree in backticks; a trailing place such as :12 or a glob is not one.
    while IFS= read -r path; do
        [ -e "$path" ] || report "$page: \`$path\` is not there"
    done < <(grep -oE '`(src|tests|docs|examples|scripts|include|bench|cmake)/[A-Za-z0-9_./-]+`' "$page" |
        tr -d '\140' | sort -u)
    # Relative links.
    while IFS= read -r link; do
        link=${link%%#*}
        if [ -n "$link" ] && [ ! -e "$folder/$link" ]; then
            report "$page: the link to $link leads nowhere"
        fi
    done < <(grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//' | grep -vE '^[a-z]+:' | sort -u)
    # Functions and types of the library.
    while IFS= read -r symbol; do
        grep -rqE "\\b$symbol\\b" src include tests cmake || report "$page: no \`$symbol\` in the code"
    done < <(grep -oE '`cy_[a-z0-9_]+' "$page" | tr -d '\140' | sort -u)
done

[ "${#pages[@]}" -ge 10 ] || report "only ${#pages[@]} pages were looked at"
exit $((faults > 0))
