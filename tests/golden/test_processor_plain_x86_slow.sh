#!/usr/bin/env bash
# The program on an x86-64 with neither AVX nor FMA, emulated: nothing may use what it lacks, and
# the multiply-adds of strict mode have the bits of those that have an instruction for it.
# shellcheck source=emulated_x86.sh
. "${SOURCE:-.}/tests/golden/emulated_x86.sh"
run_as Nehalem "nothing that kernels are tuned for"
