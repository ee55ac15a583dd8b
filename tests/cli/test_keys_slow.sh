#!/usr/bin/env bash
# Every key of the configuration has an effect: a run with it differs from the same run without it, in
# its steps, what it prints, what it writes or what is planned for it; or the key is refused; or it is
# known to be a label, and then nothing differs. A key that this file does not know is a failure.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

: >"$folder/known"
runs=0

# fail WORDS
fail() {
    echo "FAIL: $1"
    failures=$((failures + 1))
}

# observe FILE ARGUMENTS...: into FILE how a short run ends, its steps, what it says and the names of
# what it writes, without times and rates; in $status how it ended. @ in an argument is a folder of
# the run's own.
observe() {
    local file=$1 own
    shift
    runs=$((runs + 1))
    own=$folder/run.$runs
    mkdir "$own"
    cp -r "$folder/saves" "$own/saves" 2>"$folder/log"
    local arguments=(--training.total_train_steps=3)
    case "$*" in
    *logging.run_dir=*) ;;
    *) arguments+=(--logging.run_dir="$own/log") ;;
    esac
    arguments+=("${@//@/$own}")
    status=0
    "$cyclotron" train "$folder/tiny.json" "${arguments[@]}" >"$own/out" 2>"$own/err" </dev/null ||
        status=$?
    {
        echo "status $status"
        grep -E '^\[rank|ranks = |^  [a-z_]+ +[0-9]+ x |busiest|starting|continuing' "$own/out" |
            sed -E 's,(Tokens/s|Memory|MFU)[^|]*\|,,g'
        sed "s,$own,@,g" "$own/err"
        cat "$own"/*/metrics.jsonl 2>"$folder/log" |
            sed -E 's/"(step_s|tok_s|tok_s_rank|mfu|mfu_causal|mem_gb|data_s|data_ready|s|exposed_s)":[0-9][^,}]*/"\1":0/g'
        (cd "$own" && find . -type f | sed -E 's/tfevents\..*/tfevents/' | sort)
    } >"$file"
    rm -r "$own"
}

# plan_of FILE ARGUMENTS...: what is planned for a run, without what this process happens to hold.
plan_of() {
    "$cyclotron" plan "$folder/tiny.json" "${@:2}" --json 2>&1 |
        sed -E 's/"(libraries|total)_bytes":[0-9]+//g' >"$1"
}

# differs KEY=VALUE COMPANIONS...: the last two runs do, or else their plans.
differs() {
    cmp -s "$folder/base" "$folder/changed" || return 0
    plan_of "$folder/base.plan" "${@:2}"
    plan_of "$folder/changed.plan" "${@:2}" "--$1"
    ! cmp -s "$folder/base.plan" "$folder/changed.plan"
}

# The run without the key, kept for the next key that has the same companions.
base_of=none
observe_base() {
    if [ "$base_of" != "$*" ]; then
        observe "$folder/base" "$@"
        base_status=$status
        base_of=$*
    fi
}

# changes KEY=VALUE COMPANIONS...: both runs end well, and differ.
changes() {
    echo "--${1%%=*}=" >>"$folder/known"
    observe_base "${@:2}"
    observe "$folder/changed" "${@:2}" "--$1"
    if [ "$base_status" -ne 0 ] || [ "$status" -ne 0 ]; then
        fail "$* ended with $base_status without the first, with $status with it"
        grep -hE 'error|hint' "$folder/base" "$folder/changed"
    elif ! differs "$@"; then
        fail "$1 changes nothing beside ${*:2}"
    fi
}

# labels KEY=VALUE: the run ends well and is the same.
labels() {
    echo "--${1%%=*}=" >>"$folder/known"
    observe_base
    observe "$folder/changed" "--$1"
    if differs "$1"; then
        fail "$1, a label, changes something"
        diff "$folder/base" "$folder/changed" | cut -c 1-200 | head -10
    fi
}

# refuses KEY=VALUE COMPANIONS...: not without the key, but with it, by its name.
refuses() {
    local name=${1%%=*}
    echo "--$name=" >>"$folder/known"
    observe_base "${@:2}"
    observe "$folder/changed" "${@:2}" "--$1"
    if [ "$base_status" -ne 0 ] || [ "$status" -ne 2 ] || ! grep -q "$name" "$folder/changed"; then
        fail "$* ended with $base_status without the first, with $status with it, or does not name it"
        grep -hE 'error|hint' "$folder/base" "$folder/changed"
    fi
}

# elsewhere KEY TEST: nothing that a short run shows; the test that holds it names it.
elsewhere() {
    echo "--$1=" >>"$folder/known"
    grep -q "${1#*.}" "$source_folder/tests/$2" || fail "tests/$2 does not speak of $1"
}

# ---- what the runs need

train 0 first --training.total_train_steps=2 --checkpoint.save_dir="$folder/saved"
mkdir "$folder/saves"
cp -r "$folder/saved/step-00000002" "$folder/saves"
expect 0 checkpoint export "$folder/saved/step-00000002" --out="$folder/exported"
script_text 1000 >"$folder/other.txt"
"$cyclotron" tokenizer train --vocab-size=290 --out="$folder/other.json" "$folder/other.txt" \
    >"$folder/log" || exit 1
printf '%s\n' F0,B0,F1,B1 F0,B0,F1,B1 >"$folder/a.csv"
printf '%s\n' F0,F1,B0,B1 F0,F1,B0,B1 >"$folder/b.csv"

d=distributed m=model t=training
two_dp=--$d.dp_size=2 two_tp=--$d.tp_size=2 two_cp=--$d.cp_size=2 two_pp=--$d.pp_size=2
four_layers=--$m.num_hidden_layers=4

# ---- distributed

changes $d.tp_size=2
changes $d.cp_size=2
changes $d.pp_size=2
changes $d.dp_size=2
refuses $d.ep_size=2
refuses $d.etp_size=2
changes $d.pp_engine=afab $two_pp --$t.gradient_accumulation_steps=4
changes $d.pp_chunks=2 $two_pp $four_layers --$d.pp_engine=interleaved
changes $d.pp_schedule="$folder/b.csv" $two_pp --$d.pp_engine=csv --$d.pp_schedule="$folder/a.csv"
changes "$d.pp_layers=[1,3]" $two_pp $four_layers
changes $d.zero_stage=1 $two_dp
changes $d.sequence_parallel=true $two_tp
changes $d.sequence_keep_inputs=true $two_tp --$d.sequence_parallel=true
changes $d.tp_overlap=false $two_tp --$d.sequence_parallel=true
changes $d.cp_style=ulysses $two_cp
changes $d.cp_layout=contiguous $two_cp
changes $d.dp_reduce=naive $two_dp
changes $d.bucket_mb=0.01 $two_dp
changes $d.first_bucket_mb=0.01 $two_dp
changes $d.compression=int8 $two_dp
changes $d.topk_ratio=0.5 $two_dp --$d.compression=topk --$d.topk_warmup_steps=0
changes $d.topk_warmup_steps=1 $two_dp --$d.compression=topk
refuses $d.backend=mpi $two_dp
changes $d.algorithm=ring --$d.dp_size=4
changes $d.ranks_per_node=2 --$d.dp_size=4 --$d.algorithm=hierarchical
refuses $d.device=cuda
elsewhere $d.device golden/test_device.sh
changes $d.isa=ref
changes $d.threads_per_rank=2
changes $d.rank_order=dp,tp,cp,pp $two_dp $two_tp
elsewhere $d.timeout_s cli/test_stopped_rank_slow.sh
refuses $d.use_cpu=false

# ---- model

changes $m.name=smollm-135m
changes $m.model_type=qwen2
changes $m.init=pretrained --$m.name="$folder/exported"
changes $m.num_hidden_layers=3
changes $m.hidden_size=64
changes $m.intermediate_size=96
changes $m.num_attention_heads=8
changes $m.num_key_value_heads=4
changes $m.head_dim=16
changes $m.vocab_size=352
changes $m.max_position_embeddings=1024 "--$m.rope_scaling={\"rope_type\": \"yarn\", \"factor\": 4.0}"
refuses $m.max_position_embeddings=16
changes $m.rms_norm_eps=0.01
changes $m.rope_theta=100
changes "$m.rope_scaling={\"rope_type\": \"linear\", \"factor\": 4.0}"
changes $m.tie_word_embeddings=false
changes $m.attention_bias=true
changes $m.sliding_window=8
changes $m.initializer_range=0.5
refuses $m.num_local_experts=4
refuses $m.num_experts=4
refuses $m.num_experts_per_tok=2
refuses $m.moe_intermediate_size=64
refuses $m.router_aux_loss_coef=0.5
changes $m.dtype=bf16
changes $m.use_flash_attention=false
elsewhere $m.use_fused_adam unit/test_engine_kernels.c

# ---- training

changes $t.seed=7
changes $t.learning_rate=0.1
changes $t.min_learning_rate=0.005
changes $t.lr_schedule=linear
changes $t.warmup_steps=1
changes $t.lr_decay_steps=4
changes $t.weight_decay=0.5
changes $t.adam_beta1=0.5
changes $t.adam_beta2=0.5
changes $t.adam_eps=0.01
changes $t.grad_clip=0.1
changes $t.total_train_steps=2
changes $t.max_tokens=512
changes $t.seq_length=16
changes $t.micro_batch_size=2
changes $t.gradient_accumulation_steps=1
changes $t.global_batch_size=16 --$t.gradient_accumulation_steps=null
changes $t.num_samples=8
changes $t.recompute=full
changes $t.strict=true

# ---- dataset

changes dataset.name="$folder/other.txt"
changes dataset.tokenizer="$folder/other.json"
changes dataset.validation_fraction=0.5
refuses dataset.split=test
refuses dataset.subset_name=en
refuses dataset.num_proc=3
refuses dataset.num_workers=3

# ---- checkpoint

changes checkpoint.save_dir=@/made
changes checkpoint.save_frequency=1 --checkpoint.save_dir=@/made
changes checkpoint.load_path=@/saves
changes checkpoint.resume=auto --checkpoint.save_dir=@/saves
changes checkpoint.load=weights --checkpoint.load_path=@/saves
elsewhere checkpoint.accept cli/test_identity.sh
changes checkpoint.keep_last=1 --checkpoint.save_dir=@/made --checkpoint.save_frequency=1
elsewhere checkpoint.timeout_s cli/test_slow_files_slow.sh

# ---- logging

changes logging.run_dir=@/elsewhere
labels logging.run_name=one
changes logging.log_frequency=2
changes logging.eval_frequency=2
changes logging.eval_tokens=64 --logging.eval_frequency=2
changes logging.hash_frequency=1
changes logging.measure_peak=true
changes logging.tensorboard=true
refuses logging.use_wandb=true
labels logging.project_name=one

# ---- environment

changes environment.OMP_NUM_THREADS=7 --$d.threads_per_rank=null
changes environment.FLASH_ATTEN=0
labels environment.TOKENIZERS_PARALLELISM=false
labels environment.HF_TOKEN=secret

expect 0 config show --words
sort -u "$folder/known" >"$folder/known.sorted"
check "each key is here, and nothing else" diff <(sort "$folder/out") "$folder/known.sorted"

finish
