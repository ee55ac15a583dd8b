#!/usr/bin/env bash
# The meshes of test_equivalence_strict_slow.sh over 20 steps in both dtypes.
RUNS="fp32:20 bf16:20" exec bash "$SOURCE/tests/dist/test_equivalence_strict_slow.sh"
