#!/usr/bin/env bash
# The program on a processor with AVX2 and FMA and nothing beyond, emulated.
# shellcheck source=emulated_x86.sh
. "${SOURCE:-.}/tests/golden/emulated_x86.sh"
run_as Haswell,-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm avx2
