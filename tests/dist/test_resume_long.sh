#!/usr/bin/env bash
# Every dimension, ZeRO stage, engine and number of chunks against others, in both directions.
exec bash "$SOURCE/tests/dist/resume_pairs.sh" one:tp2 one:cp2 one:pp2 one:dp2 one:tcpd16 tp2:tp4 \
    tp4:tp8 tp2:dp2z1 tp8:cp3 cp2:cp4u cp3:dp3z2 cp2:pp2v pp2:pp2v pp2:pp3 pp3:pp4z pp4z:pp8 \
    pp8:pp2 pp3:dp3z2 dp2:dp2z1 dp2z1:dp3z2 dp3z2:dp4z3 dp8z3:dp3z2 tcd8:dp3z2 tcd8:tpd8 \
    tpd8:cpd8 cpd8:dp8z3 tcpd16:pp3 tcpd16:dp8z3
