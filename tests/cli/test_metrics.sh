#!/usr/bin/env bash
# cyclotron metrics: the table of runs, the curves, and what is refused.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

mkdir "$folder/one" "$folder/two, too"
for step in 1 2 3 4 5 6; do
    printf '{"step":%d,"tokens":%d,"loss":%d.5,"step_s":0.5,"tok_s":%d,"tok_s_rank":%d,"mfu":0.%d,"mfu_causal":null,"mem_gb":1.%d,"data_s":0.25,"data_ready":0.5}\n' \
        $step $((step * 100)) $((9 - step)) $((step * 10)) $((step * 5)) $step $step
    if [ $step = 4 ]; then printf '{"step":4,"val_loss":5.25,"val_tokens":10}\n'; fi
done >"$folder/one/metrics.jsonl"
printf '{"step":1,"loss":2}\n{"step":2,"loss":1.5}\n' >"$folder/two, too/metrics.jsonl"

source_folder=$(realpath "$source_folder")
cd "$folder" || exit 1
case $cyclotron in
/*) ;;
*) cyclotron=$OLDPWD/$cyclotron ;;
esac
"$cyclotron" config show "$source_folder/examples/tiny.json" --training.total_train_steps=6 \
    --logging.run_name='a "run"' --distributed.dp_size=2 --distributed.zero_stage=1 >one/config.json
printf '{"model": {"nam": 1}}' >"two, too/config.json"
expect 0 metrics one "two, too" --skip=3
says err 'cyclotron: warning: two, too/config.json: model.nam: no such key'
is out "run_name,status,dp,tp,pp,micro_batch_size,grad_acc,seq_len,avg_tokens_s_gpu,avg_mfu,step,tokens,loss,val_loss,step_s,tok_s,tok_s_min,tok_s_max,tok_s_rank,mfu,mfu_min,mfu_max,mfu_causal,mem_gb,cp,zero_stage,ranks,data_s,data_ready,run
\"a \"\"run\"\"\",completed,2,1,1,4,2,128,25,50,6,600,3.5,5.25,0.5,50,40,60,25,0.5,0.4,0.6,,1.6,1,1,2,0.25,0.5,one
\"two, too\",unknown,,,,,,,,,2,,1.5,,,,,,,,,,,,,,,,,\"two, too\""
expect 0 metrics one/metrics.jsonl --skip 0
says out '"a ""run""",completed,2,1,1,4,2,128,17.5,35,6,600,3.5,5.25,0.5,35,10,60,17.5,'
says out ',one/metrics.jsonl'
expect 0 metrics one/metrics.jsonl --per-run
check "the own row of a metrics.jsonl" cmp "$folder/out" one/metrics.csv
rm one/metrics.csv
# The name of a run is the last part of its path.
for run in one/ one// ./one "$folder/one" one/metrics.jsonl ./one/metrics.jsonl; do
    expect 0 metrics "$run"
    check "the name of $run" grep -q '^\("a ""run"""\|one\),' "$folder/out"
    says out ",$run"
done
cp one/metrics.jsonl metrics.jsonl
expect 0 metrics metrics.jsonl --skip=5
says out "$(basename "$folder"),unknown,,,,,,,30,60,6,600,3.5,5.25,0.5,60,60,60,30,0.6,0.6,0.6,,1.6,,,,0.25,0.5,metrics.jsonl"
# Steps up to the last one that is left out do not count; all of them may be left out.
expect 0 metrics metrics.jsonl --skip=6
says out "$(basename "$folder"),unknown,,,,,,,,,6,600,3.5,5.25,,,,,,,,,,,,,,,,metrics.jsonl"
expect 0 metrics metrics.jsonl metrics.jsonl --skip=4 --json
check 'two objects in an array' python3 -c "
import json, sys
runs = json.load(open('$folder/out'))
assert len(runs) == 2 and runs[0] == runs[1], runs
assert runs[0]['avg_tokens_s_gpu'] == 27.5 and runs[0]['tok_s'] == 55, runs
assert runs[0]['dp'] is None and runs[0]['run'] == 'metrics.jsonl', runs"

# A table in a file, a row in each run's folder, and JSON. A run that stopped short says so.
"$cyclotron" config show "$source_folder/examples/tiny.json" >one/config.json
expect 0 metrics one --out=table.csv --per-run
is out ""
cmp table.csv one/metrics.csv || failures=$((failures + 1))
grep -q '^one,incomplete,1,' table.csv || failures=$((failures + 1))
expect 0 metrics one --json
says out '"avg_mfu": 50, "step": 6,'

# One run that is not there does not hide the others.
expect 2 metrics none --json
is out "[]"
expect 2 metrics none one
says out 'one,incomplete'

expect 0 metrics one --plot --svg=loss.svg
is err ""
says out '* training   o validation'
head -c 40 loss.svg >out
says out '<svg xmlns="http://www.w3.org/2000/svg"'

# A run that is being written: said, and passed over.
printf '{"step":7,"lo' >>one/metrics.jsonl
expect 0 metrics one
is err 'cyclotron: warning: one/metrics.jsonl: 1 lines are no JSON objects with a step and were left out'

expect 2 metrics
expect 2 metrics one two --plot
is err "cyclotron: error: a curve is of one RUN, there are 2
  hint: 'cyclotron metrics --help' shows how it is called"
expect 2 metrics one --plot --json
says err '--json prints figures, a curve is drawn'
is out ""
expect 2 metrics none
is err 'cyclotron: error: none: No such file or directory'
printf '{"step":1,"val_loss":2}\n' >empty
expect 1 metrics empty
is err 'cyclotron: error: empty: no step in it'
expect 1 metrics one --svg=/nowhere/loss.svg
says err '/nowhere/loss.svg'

expect 2 metrics "$folder" --skip=-1
says err '--skip=-1: a whole number from 0 to 1000000000 is wanted'

finish
