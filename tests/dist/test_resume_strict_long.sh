#!/usr/bin/env bash
# Strict mode: a continued run is the run of one rank that was never stopped, bit for bit, whichever
# mesh saved it. 22 pairs of meshes in both directions in fp32, four in bf16.
set -euo pipefail
STRICT=true DTYPE=fp32 bash "$SOURCE/tests/dist/resume_pairs.sh" one:tp2 one:cp2 one:pp2 one:dp2 \
    one:tcpd16 tp2:tp4 tp4:tp8 tp8:cp3 cp2:cp4u cp3:dp3z2 cp2:pp2v pp2:pp3 pp3:pp4z pp4z:pp8 \
    pp8:pp2 dp2:dp2z1 dp2z1:dp4z3 dp8z3:dp3z2 tcd8:tpd8 tpd8:cpd8 cpd8:dp8z3 tcpd16:pp3
STRICT=true DTYPE=bf16 bash "$SOURCE/tests/dist/resume_pairs.sh" one:tcpd16 tp8:cp4u pp4z:dp3z2 \
    tcd8:cpd8
