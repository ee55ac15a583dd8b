#!/usr/bin/env bash
# Figures have a source: each section of README and docs/ that shows measured or counted figures (a
# table with decimal numbers, or numbers with a unit of time or rate) names the command or the
# test that makes them. And what a page tells a reader to run is there: commands of the program,
# their options and keys, targets of the Makefile, scripts, tests.
# shellcheck disable=SC2016 # awk's, and backticks of the pages, not the shell's
set -euo pipefail
cd "$SOURCE"

known=$(mktemp)
trap 'rm -f "$known"' EXIT
{
    # The program's tables of commands, and of those below a command.
    sed -nE 's/^    \{"([a-z]+)", cy_command_([a-z_]+),.*/command \2/p' src/cli/*.c src/cli/bench/*.c
    # The options of each command's table.
    for file in src/cli/*.c src/cli/bench/*.c; do
        command=${file#src/cli/}
        command=${command%.c}
        command=${command/\//_} # bench/step.c is the command bench_step
        sed -nE "s/^    \{\"([a-z0-9-]+)\", CY_OPTION_.*/option $command --\1/p" "$file"
    done
    sed -nE 's/^    \{"([a-z_]+)", "[a-z]+\..*/option config --\1/p' src/cli/config.c
    # Keys, by section, from the page that a test holds to the program.
    awk '/^## / { section = $2; gsub(/`/, "", section) }
        /^\| `/ { key = $2; gsub(/`/, "", key); print "key --" section "." key }' docs/configuration.md
    sed -nE 's/^([a-z-]+):.*/target \1/p' Makefile
    find tests -name 'test_*.[cs]*' | sed -E 's/\.(c|sh)$//; s#^tests/([a-z]+)/(.*/)?test_#\1.#; s/^/test /'
} >"$known"
grep -q '^key --distributed.tp_size$' "$known" || { echo "the keys were not found"; exit 1; }
grep -q '^command bench_step$' "$known" || { echo "the commands were not found"; exit 1; }

find docs -name '*.md' -not -path 'docs/formats/*' | sort | xargs awk '
    function report(text) {
        printf "%s:%d: %s\n", FILENAME, FNR, text
        faults++
    }
    function end_section() {
        if (figures != "" && !source && !page_source) {
            printf "%s: \"%s\" has figures and no command that makes them: %s\n", page, title, figures
            faults++
        }
        figures = ""; source = 0; decimals = 0
    }
    function exists(path) { return system("test -e " path) == 0 }

    # A word sequence that starts with the program: its command, options and keys.
    function program(words, count, at,    name, i, option) {
        name = words[at + 1]
        if (name !~ /^[a-z]+$/) return 0
        if (name == "data" || name == "checkpoint" || name == "config" || name == "tokenizer" || name == "bench") {
            if (("command " name "_" words[at + 2]) in known) name = name "_" words[at + 2]
        }
        if (!(("command " name) in known)) { report("no command: cyclotron " name); return 0 }
        for (i = at + 2; i <= count; i++) {
            option = words[i]
            sub(/[=\]].*/, "", option)
            sub(/^\[/, "", option)
            if (option ~ /^--[a-z_]+\.[a-z_]+$/) {
                if (!(("key " option) in known)) report("no key: " option)
            } else if (option ~ /^--[a-z][a-z-]+$/ && option != "--help" && option != "--json") {
                if (!known_option(name, option)) report("no option of cyclotron " name ": " option)
            }
        }
        return 1
    }
    # The options of `checkpoint import` stand in checkpoint.c, those of `bench step` in bench_step.c.
    function known_option(name, option,    group) {
        group = name
        sub(/_.*/, "", group)
        return (("option " name " " option) in known) || (("option " group " " option) in known)
    }

    # Something to run; returns whether it makes figures.
    function runs(text,    words, count, i, found, word) {
        count = split(text, words, /[ \t]+/)
        found = 0
        for (i = 1; i <= count; i++) {
            word = words[i]
            sub(/^\(/, "", word)
            if (word ~ /^(build\/)?cyclotron$/) found += program(words, count, i)
            else if (word == "make" && i < count && words[i + 1] ~ /^[a-z][a-z-]+$/) {
                if (("target " words[i + 1]) in known) found++
                else if (i == 1) report("no target: make " words[i + 1])
            } else if (word ~ /^(scripts|bench)\/[a-z_\/0-9-]+\.(sh|py|c|json)$/ ||
                word ~ /^tests\/[a-z]+\/([a-z]+\/)?test_[a-z0-9_]+\.(c|sh)$/) {
                if (exists(word)) found++
                else report(word " is not there")
            } else if (word ~ /^build\/tests\/test_[a-z]+_[a-z0-9_]+$/) {
                sub(/^build\/tests\/test_/, "", word)
                sub(/_/, ".", word)
                if (("test " word) in known) found++
                else report("no test " word)
            } else if (word ~ /^(unit|kernel|dist|golden|cli|tidy)\.[a-z0-9_]+$/) {
                if (("test " word) in known) found++
                else if (index(text, "ctest") == 0) report("no test " word)
            }
        }
        return found
    }

    NR == FNR { known[$0] = 1; next }
    FNR == 1 {
        if (page != "") end_section()
        page = FILENAME; title = "its beginning"; fence = 0; page_source = 0; pages++
    }
    /^```/ { fence = !fence; next }
    /^## / && !fence { end_section(); title = substr($0, 4) }
    {
        line = $0
        # Code: a fenced or indented block, and spans in backticks, also those that go over two lines.
        if (fence || line ~ /^    [^ |]/) {
            while (line ~ /\\$/ && (getline more) > 0) { sub(/\\$/, "", line); line = line more }
            if (runs(line)) source = 1
            # A page that begins with a block of commands is about what they make.
            if (source && title == "its beginning") page_source = 1
            next
        }
        if (open != "") { line = "`" open " " line; open = "" }
        rest = line; plain = ""
        while (match(rest, /`[^`]*`/)) {
            plain = plain substr(rest, 1, RSTART - 1)
            if (runs(substr(rest, RSTART + 1, RLENGTH - 2))) source = 1
            rest = substr(rest, RSTART + RLENGTH)
        }
        if ((at = index(rest, "`")) > 0) { open = substr(rest, at + 1); rest = substr(rest, 1, at - 1) }
        if (line == "") open = ""
        plain = plain rest
        gsub(/\]\([^)]*\)/, "]", plain) # addresses of links
        # Rows of a table with decimal numbers; numbers with a unit.
        if (plain ~ /^\|/ && plain ~ /[ |(][0-9]+\.[0-9]/) {
            decimals++
            if (decimals == 2) figures = "line " FNR
        }
        if (plain ~ /(^|[ (])[0-9]+(\.[0-9]+)? (ms|us|ns|GB\/s|MB\/s|tokens\/s|GFLOP\/s)([ .,;:)]|$)/ &&
            figures == "") {
            figures = "line " FNR
        }
        seen += figures != ""
    }
    END {
        end_section()
        if (pages < 20 || seen < 50) { print "hardly anything was looked at"; exit 1 }
        exit faults > 0
    }' "$known" README.md
