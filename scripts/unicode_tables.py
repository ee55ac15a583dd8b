#!/usr/bin/env python3
"""Makes src/tokenizer/unicode_classes.c and src/tokenizer/unicode_compose.c.

    pip install tokenizers; python3 scripts/unicode_tables.py

The classes are taken from the `tokenizers` package itself, character by character, because token
ids must be the ones that it gives: its tables, not those of this Python, are what counts.
"""
import os
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "src", "data")
LETTER, NUMBER, SPACE, NUMERIC, WORD, STRIP, MOVES = 1, 2, 4, 8, 16, 32, 64
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HEAD = """// Made by scripts/unicode_tables.py from the character tables of the `tokenizers` package.

#include "tokenizer/unicode.h"

"""


def members(splitter):
    """Code points that the splitter cuts out of a text in which each stands alone."""
    found = set()
    for first in range(0, len(POINTS), 4096):
        text = "".join(chr(c) for c in POINTS[first:first + 4096])
        for piece, _ in splitter.pre_tokenize_str(text):
            found.update(ord(c) for c in piece)
    return found


def pattern(text):
    outside = pre_tokenizers.Split(Regex(text), "removed")
    return set(POINTS) - members(outside)


def numeric():
    """Digits() isolates each character for which Rust's is_numeric holds."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in POINTS if len(digits.pre_tokenize_str("a" + chr(c) + "a")) == 3}


def probe(token, text, count):
    """Code points around which a text is cut into `count` tokens when an added token has options."""
    made = Tokenizer(models.WordLevel({"<u>": 0}, unk_token="<u>"))
    made.add_tokens([token])
    return {c for c in POINTS if (count(made.encode(text(chr(c)))))}


def combining(nfd, c):
    """The combining class, 0 where the package does not know the character yet."""
    found = unicodedata.combining(chr(c))
    if found == 0:
        return 0
    moved = "a" + chr(c) + "\u0334" if found > 1 else "a\u0301" + chr(c)
    return found if nfd.normalize_str(moved) != moved else 0


def main():
    nfd, nfc = normalizers.NFD(), normalizers.NFC()
    flags = dict.fromkeys(POINTS, 0)
    word = probe(AddedToken("<x>", single_word=True, normalized=False), lambda c: "<x>" + c,
                 lambda e: e.ids == [0])
    strip = probe(AddedToken("<x>", rstrip=True, normalized=False), lambda c: "<x>" + c,
                  lambda e: len(e.ids) == 1)
    for bit, found in ((LETTER, pattern(r"\p{L}")), (NUMBER, pattern(r"\p{N}")),
                       (SPACE, pattern(r"\s")), (NUMERIC, numeric()), (WORD, word),
                       (STRIP, strip)):
        print(bit, len(found))
        for c in found:
            flags[c] |= bit
    for c in POINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) == 2 and "<" not in parts[0]:
            flags[int(parts[1], 16)] |= MOVES
        if combining(nfd, c) or nfc.normalize_str(chr(c)) != chr(c):
            flags[c] |= MOVES
    for c in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)):
        flags[c] |= MOVES
    entries, last = [], None
    for c in range(0x110000):
        now = flags.get(c, 0)
        if now != last:
            entries.append("0x%08x" % (c << 8 | now))
            last = now
    write("unicode_classes.c", "cy_unicode_classes", "uint32_t", entries, 8)

    pairs, composing, classes = [], [], []
    for c in POINTS:
        if 0xAC00 <= c < 0xD7A4:
            continue  # Hangul is arithmetic
        if nfd.normalize_str(chr(c)) != chr(c):
            parts = [int(p, 16) for p in unicodedata.decomposition(chr(c)).split()]
            whole = "".join(map(chr, parts))
            assert parts and nfd.normalize_str(whole) == nfd.normalize_str(chr(c)), hex(c)
            composes = nfc.normalize_str(chr(c)) == chr(c)
            parts.append(0) if len(parts) == 1 else None
            pairs.append("0x%016x" % (c << 42 | parts[0] << 21 | parts[1]))
            if composes and parts[1]:
                composing.append(parts[0] << 42 | parts[1] << 21 | c)
    last = 0
    for c in range(0x110000):
        now = combining(nfd, c)
        if now != last:
            classes.append("0x%08x" % (c << 8 | now))
            last = now
    write("unicode_compose.c", "cy_unicode_pairs", "uint64_t", pairs, 5,
          ("cy_unicode_composing", "uint64_t", ["0x%016x" % p for p in sorted(composing)], 5),
          ("cy_unicode_combining", "uint32_t", classes, 8))


def write(name, table, kind, entries, per_line, *more):
    with open(os.path.join(ROOT, name), "w") as out:
        out.write(HEAD)
        for n, (table, kind, entries, per_line) in enumerate(((table, kind, entries, per_line),) + more):
            out.write("// clang-format off\n") if n == 0 else out.write("\n")
            out.write("const %s %s[] = {\n" % (kind, table))
            for i in range(0, len(entries), per_line):
                out.write("    " + ", ".join(entries[i:i + per_line]) + ",\n")
            out.write("};\nconst size_t %s_count = sizeof(%s) / sizeof(%s[0]);\n" % ((table,) * 3))
        out.write("// clang-format on\n")


if __name__ == "__main__":
    main()
