#!/usr/bin/env bash
# cyclotron metrics: the table of runs, the curves, and what is refused.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

mkdir "$folder/one" "$folder/two, too"
for step in 1 2 3 4 5 6; do
    printf '{"step":%d,"tokens":%d,"loss":%d.5,"step_s":0.5,"tok_s":%d,"tok_s_rank":%d,"mfu":0.%d,"mfu_causal":null,"mem_gb":1.%d}\n' \
        $step $((step * 100)) $((9 - step)) $((step * 10)) $((step * 5)) $step $step
    if [ $step = 4 ]; then printf '{"step":4,"val_loss":5.25,"val_tokens":10}\n'; fi
done >"$folder/one/metrics.jsonl"
printf '{"step":1,"loss":2}\n{"step":2,"loss":1.5}\n' >"$folder/two, too/metrics.jsonl"

cd "$folder" || exit 1
case $cyclotron in
/*) ;;
*) cyclotron=$OLDPWD/$cyclotron ;;
esac
head='run,step,tokens,loss,val_loss,step_s,tok_s,tok_s_min,tok_s_max,tok_s_rank,mfu,mfu_min,mfu_max,mfu_causal,mem_gb'
expect 0 metrics one "two, too" --skip=3
is err ""
is out "$head
one,6,600,3.5,5.25,0.5,50,40,60,25,0.5,0.40000000000000002,0.59999999999999998,,1.6000000000000001
\"two, too\",2,,1.5,,,,,,,,,,,"
expect 0 metrics one/metrics.jsonl --skip 0
says out 'one/metrics.jsonl,6,600,3.5,5.25,0.5,35,10,60,17.5,'

expect 0 metrics one --plot --svg=loss.svg
is err ""
says out '* training   o validation'
head -c 40 loss.svg >out
says out '<svg xmlns="http://www.w3.org/2000/svg"'

# A run that is being written: said, and passed over.
printf '{"step":7,"lo' >>one/metrics.jsonl
expect 0 metrics one
says err 'one/metrics.jsonl: 1 lines are no JSON objects'

expect 2 metrics
expect 2 metrics one two --plot
says err 'a curve is of one RUN, there are 2'
expect 1 metrics none
says err 'none: No such file or directory'
printf '{"step":1,"val_loss":2}\n' >empty
expect 1 metrics empty
says err 'empty: no step in it'
expect 1 metrics one --svg=/nowhere/loss.svg
says err '/nowhere/loss.svg'

finish
