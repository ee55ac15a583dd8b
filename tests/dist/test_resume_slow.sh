#!/usr/bin/env bash
# A few checkpoints go on on another mesh, in both directions: across each dimension alone, across
# ZeRO stages, engines and numbers of ranks. test_resume_long.sh has the other pairs.
exec bash "$SOURCE/tests/dist/resume_pairs.sh" one:tp2 cp2:pp2v pp2:pp4z dp2z1:dp3z2 tcd8:dp3z2
