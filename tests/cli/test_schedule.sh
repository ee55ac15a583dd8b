# cyclotron schedule: the table, the picture, the JSON, and what is refused.

. "$(dirname "$0")/lib.sh"

expect 0 schedule --engine=1f1b --stages=2 --microbatches=3
is err ""
is out "rank 0   F0 F1 .  .  B0 -  F2 B1 -  .  B2 -
rank 1   .  F0 B0 -  F1 B1 -  F2 B2 -  .  .

ticks           12
bubble          25.00 %
simulated       12 ticks, bubble 25.00 %
live stashes    2 1   (by rank, from forward to input gradient)
kept stashes    2 1   (the part that stays until the weight gradient)
sends           3 3   (6 messages in all)"

expect 0 schedule --engine interleaved --stages 2 --microbatches 2 --chunks 2 --json
says out '{"engine":"interleaved","stages":2,"microbatches":2,"chunks":2,"placement":"loop","ticks":15,'
says out '"actions":["F0.0","SF0.0","F1.0","SF1.0",'

expect 0 schedule --engine=zero_bubble --stages=4 --microbatches=8 --chunks=2 --json \
    "--svg=$folder/s.svg"
says out '"ticks":51,"span":48,"bubble":0,'
grep -q '</svg>' "$folder/s.svg" || { echo "FAIL: no picture"; failures=$((failures + 1)); }

# The legend names what is drawn, be it once.
expect 0 schedule --engine=1f1b --stages=1 --microbatches=1 "--svg=$folder/one.svg"
for word in forward backward; do
    check "$word in the legend" grep -q ">$word</text>" "$folder/one.svg"
done
for word in 'input gradient' 'weight gradient'; do
    check "no $word in the legend" test "$(grep -c ">$word</text>" "$folder/one.svg")" = 0
done

expect 0 schedule --engine=afab --stages=2 --microbatches=1 --latency=3
says out 'simulated       12 ticks'

printf 'F0,F1,B0,B1\nF1,F0,B0,B1\n' >"$folder/mine.csv"
expect 0 schedule --engine=csv "--csv=$folder/mine.csv" --stages=2 --microbatches=2
printf 'F0,B0,F1,B1\nF1,B1,F0,B0\n' >"$folder/mine.csv"
expect 2 schedule --engine=csv "--csv=$folder/mine.csv" --stages=2 --microbatches=2
is out ""
is err "cyclotron: error: $folder/mine.csv: the schedule has a cycle: rank 0 waits at B0 for rank 1, rank 1 waits at F1 for rank 0"

expect 2 schedule --engine=afab --stages=4 --microbatches=8 --chunks=2
says err 'afab takes 1 chunk a stage, not 2'
expect 2 schedule --engine=csv --stages=2 --microbatches=2
says err 'the csv engine needs the path of its schedule'
expect 2 schedule --engine=csv --csv="$folder/none.csv" --stages=2 --microbatches=2
says err 'none.csv: No such file or directory'
expect 2 schedule --engine=1f1b --stages=2 --microbatches=2 --csv=x
says err '--csv goes with --engine=csv, not 1f1b'
expect 2 schedule --engine=gpipe --stages=2 --microbatches=2
expect 2 schedule --stages=2 --microbatches=2
expect 2 schedule --engine=1f1b --stages=0 --microbatches=2
expect 1 schedule --engine=1f1b --stages=2 --microbatches=2 --svg=/nowhere/s.svg

finish
