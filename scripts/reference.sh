#!/usr/bin/env bash
# reference.sh [FOLDER]: the reference of the public headers as HTML in FOLDER (build/reference), made
# by Doxygen. Ends with 1 when a public declaration has no comment or Doxygen warns of anything; with
# 77 where there is no Doxygen.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/reference}
if ! command -v doxygen >/dev/null; then
    echo "reference: no doxygen here; on Debian: apt-get install doxygen"
    exit 77
fi
mkdir -p "$out"

# Our comments are plain: the first line names the file, a comment above or behind a declaration is
# its text. The filter turns them into Doxygen's forms; the lines stay where they are.
cat >"$out/filter.sed" <<'FILTER'
1s;^// ([^:]*): (.*);/** @file */ /** \2 */;
/^ *\/\/( |$)/s;//;///;
/^ *\/\//!s;([^ /]) +// ;\1 ///< ;
FILTER
# Each option on a line of its own, so that later Doxygens can be compared.
cat >"$out/Doxyfile" <<CONFIG
PROJECT_NAME = Cyclotron
PROJECT_BRIEF = "Pre-training of Llama-like models over many ranks, in C"
INPUT = include/cyclotron
OUTPUT_DIRECTORY = $out
OPTIMIZE_OUTPUT_FOR_C = YES
JAVADOC_AUTOBRIEF = YES
GENERATE_LATEX = NO
HAVE_DOT = NO
QUIET = YES
WARN_IF_UNDOCUMENTED = YES
WARN_LOGFILE = $out/warnings
MACRO_EXPANSION = YES
PREDEFINED = CY_API= CY_MUST_CHECK=
FILTER_PATTERNS = *.h="sed -E -f $out/filter.sed"
CONFIG
doxygen "$out/Doxyfile"
if [ -s "$out/warnings" ]; then
    cat "$out/warnings"
    exit 1
fi
echo "reference: $out/html/index.html"
