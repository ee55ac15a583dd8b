#!/usr/bin/env bash
# Compares random configurations on random meshes with one rank: the mesh fuzzer.
#
#   scripts/mesh_fuzz.sh [--seed=S] [--cases=N] [--seconds=S] [--first=N] [--ranks=N] [--case=N]
#
# A case draws a model (heads, widths, layers, vocabulary, window, rotary positions, norms, biases), a
# batch, a dtype or strict mode, and a mesh of at most --ranks ranks (8) with engine, ZeRO stage,
# context style, rank order, bucket sizes, level of instructions and device. One rank, on the CPU at the
# level of the processor, and the mesh train it for six steps on the same text. In a third of the cases
# the mesh stops halfway and a second mesh continues from its checkpoint. Losses, gradient norms and
# every weight tensor must agree within the bounds of the dtype (scripts/mesh_runs.sh); in strict mode
# all bits must be equal.
#
# The seed is the date unless --seed gives one, so each day tries other cases. Every random number is
# a function of the seed and the number of the case: --seed=S --case=N repeats one case and shows what
# it runs. --cases (20) and --seconds (no limit) end the run, whichever comes first. A configuration
# that `config check` refuses is drawn again; more than 30 refusals in a row are an error.
#
# Prints one line a case and a summary; the status is 1 if a case failed. CYCLOTRON is the program;
# MESH_FUZZ is the folder for everything that is written (build/mesh_fuzz).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=mesh_runs.sh
. scripts/mesh_runs.sh

program=${CYCLOTRON:-build/cyclotron}
folder=${MESH_FUZZ:-build/mesh_fuzz}
seed=$(date +%Y%m%d)
cases=20
seconds=0
first=1
ranks=8
for argument in "$@"; do
    case $argument in
    --seed=*) seed=${argument#*=} ;;
    --cases=*) cases=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} cases=1000000 ;;
    --first=*) first=${argument#*=} ;;
    --ranks=*) ranks=${argument#*=} ;;
    --case=*) first=${argument#*=} cases=1 ;;
    *) echo "mesh_fuzz: error: unknown option $argument" >&2; exit 2 ;;
    esac
done
steps=6
half=3
only=$cases

# ---- random numbers: a linear congruential generator of 48 bits, the constants of POSIX's drand48

state=0
# start_case NUMBER: the generator's state for this case of this seed.
start_case() {
    state=$((((seed * 1000003 + $1) * 25214903917 + 11) & 0xffffffffffff))
    draw 1
    draw 1
}

# draw N: sets `drawn` to a number from 0 to N - 1.
draw() {
    state=$(((state * 25214903917 + 11) & 0xffffffffffff))
    drawn=$(((state >> 17) % $1))
}

# pick WORD...: sets `drawn` to one of its arguments.
pick() {
    draw $#
    local number=$((drawn + 1))
    drawn=${!number}
}

# chance A B: true in A of B cases.
chance() {
    draw "$2"
    [ "$drawn" -lt "$1" ]
}

# The levels of instructions that this processor and this build have; other processors draw others at the same place.
levels=()
for level in ref avx2 avx512 avx512_bf16 amx neon; do
    if said=$("$program" doctor --quick --isa="$level" 2>&1); then
        levels+=("$level")
    elif ! grep -qE 'this processor does not support it|this build is held to' <<<"$said"; then
        echo "mesh_fuzz: error: doctor --isa=$level: $said" >&2
        exit 1
    fi
done

# ---- what is drawn

# A factor of one of the four axes at a time, until no further one fits.
draw_mesh() {
    tp=1 cp=1 pp=1 dp=1 # read by name below
    local factor axis
    for _ in 1 2 3 4; do
        pick 1 2 2 2 3 4
        factor=$drawn
        if [ $((tp * cp * pp * dp * factor)) -gt "$ranks" ]; then continue; fi
        pick tp cp pp dp
        axis=$drawn
        printf -v "$axis" '%d' $((${!axis} * factor))
    done
}

# The model, from the sizes of a mesh that it has to fit; later meshes that do not fit are refused.
draw_model() {
    local heads kv head_dim
    pick 1 1 2 3
    heads=$((tp * drawn))
    if [ $heads -lt 2 ]; then heads=2; fi
    pick 8 8 16 12
    head_dim=$drawn
    if [ "$strict" = true ]; then head_dim=16; fi
    kv=0
    while [ $kv -eq 0 ] || [ $((heads % kv)) -ne 0 ]; do
        draw $heads
        kv=$((drawn + 1))
    done
    pick 32 48 64
    model=(--model.num_attention_heads="$heads" --model.num_key_value_heads="$kv"
        --model.head_dim="$head_dim" --model.hidden_size="$drawn")
    draw 4
    model+=(--model.num_hidden_layers=$((2 * pp + drawn)))
    pick 16 24 32
    if [ "$strict" = true ]; then drawn=64; fi
    model+=(--model.intermediate_size=$((tp * drawn)))
    pick 320 331 384 337
    model+=(--model.vocab_size="$drawn")
    pick true false
    model+=(--model.tie_word_embeddings="$drawn")
    # Softmax cancels most of a key bias's gradient, so that rounding decides its first updates in bf16.
    if [ "$dtype-$strict" != bf16-false ] && chance 1 4; then
        model+=(--model.attention_bias=true)
    fi
    if chance 1 5; then model+=(--model.model_type=qwen3); fi
    if chance 1 4; then draw 40; model+=(--model.sliding_window=$((drawn + 3))); fi
    pick 10000 500000
    model+=(--model.rope_theta="$drawn")
    if chance 1 3; then
        pick '{"rope_type":"linear","factor":2.0}' \
            '{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32}' \
            '{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":32}'
        model+=(--model.rope_scaling="$drawn")
    fi
}

# Sets `micro`, the samples of a microbatch of the first mesh, and adds the rest to the model's options.
draw_training() {
    local unit=$((2 * cp))
    if [ "$strict" = true ]; then unit=$((64 * cp)); fi
    draw 3
    model+=(--training.seq_length=$((unit * (drawn + 2))))
    pick 1 1 2
    micro=$drawn
    draw 4
    batch=$((dp * micro * (drawn + 1)))
    if [ "$pp" -gt 1 ]; then batch=$((dp * micro * pp)); fi
    model+=(--training.global_batch_size="$batch")
    pick 0 1.0
    model+=(--training.grad_clip="$drawn")
    pick constant cosine linear wsd
    model+=(--training.lr_schedule="$drawn" --training.lr_decay_steps=6 --training.warmup_steps=1)
}

# How the mesh runs it: sets `split`, what train() of mesh_runs.sh takes.
draw_split() {
    split="$tp $cp $pp $dp"
    if [ $((dp * cp)) -gt 1 ]; then pick 0 1 2 3; split+=" zero_stage=$drawn"; fi
    if [ "$pp" -gt 1 ]; then
        pick afab 1f1b zero_bubble "interleaved pp_chunks=2" "zero_bubble pp_chunks=2"
        split+=" pp_engine=$drawn"
    fi
    if [ "$tp" -gt 1 ]; then
        pick true false; split+=" sequence_parallel=$drawn"
        pick true true false; split+=" tp_overlap=$drawn"
    fi
    if [ "$cp" -gt 1 ]; then
        pick ring all_gather ulysses; split+=" cp_style=$drawn"
        pick zigzag contiguous; split+=" cp_layout=$drawn"
    fi
    pick bucketed bucketed naive; split+=" dp_reduce=$drawn"
    pick 25 0.01 0.001; split+=" bucket_mb=$drawn"
    # A fifth, a half or all of a bucket of 0.001; absent: 1, or all of a smaller bucket.
    pick 0 0 0.0002 0.0005 0.001
    if [ "$drawn" != 0 ]; then split+=" first_bucket_mb=$drawn"; fi
    pick auto "${levels[@]}"; split+=" isa=$drawn"
    pick cpu cpu test; split+=" device=$drawn"
    pick tp,cp,pp,dp dp,pp,cp,tp cp,dp,tp,pp pp,tp,dp,cp; split+=" rank_order=$drawn"
    pick none none selective full; split+=" --training.recompute=$drawn"
    if chance 1 4; then split+=" threads_per_rank=2"; fi
}

# accepted SPLIT: whether `config check` takes this split with the model at hand.
accepted() {
    local each options=() word
    read -r -a each <<<"$1"
    for word in "${each[@]:4}"; do
        case $word in
        --*) options+=("$word") ;;
        *) options+=("--distributed.$word") ;;
        esac
    done
    "$program" config check "$folder/config.json" --model.dtype="$dtype" "${model[@]}" \
        --distributed.tp_size="${each[0]}" --distributed.cp_size="${each[1]}" \
        --distributed.pp_size="${each[2]}" --distributed.dp_size="${each[3]}" \
        "${options[@]}" >"$folder/check.log" 2>&1
}

# Draws until the configuration is accepted. Sets dtype, strict, model, batch, split and, for a case
# that changes the mesh halfway, split_after.
draw_case() {
    local refused=0
    split_after=
    while :; do
        if [ $refused -gt 30 ]; then
            echo "mesh_fuzz: error: 30 configurations in a row were refused; the last:" >&2
            cat "$folder/check.log" >&2
            exit 1
        fi
        pick fp32 fp32 fp64 bf16 bf16 fp32-strict bf16-strict
        dtype=${drawn%-strict} strict=false
        if [ "$dtype" != "$drawn" ]; then strict=true; fi
        write_config
        draw_mesh
        draw_model
        draw_training
        draw_split
        split+=" --training.micro_batch_size=$micro"
        if accepted "$split"; then break; fi
        refused=$((refused + 1))
        refusals=$((refusals + 1))
    done
    chance 1 3 || return 0
    local before=$split
    for _ in 1 2 3 4 5 6 7 8; do
        draw_mesh
        draw_split
        split+=" --training.micro_batch_size=1"
        if accepted "$split"; then
            split_after=$split
            break
        fi
        refusals=$((refusals + 1))
    done
    split=$before
}

# ---- what is run

# write_config: the members that all cases share. mesh_runs.sh's train() reads the file. The epsilon of
# AdamW is large enough that a gradient which is zero but for rounding moves no weight.
write_config() {
    cat >"$folder/config.json" <<CONFIG
{
    "training": {"total_train_steps": $steps, "weight_decay": 0.1, "learning_rate": 3e-4,
        "adam_eps": 1e-5, "strict": $strict},
    "dataset": {"name": "$folder/data", "tokenizer": "$folder/tokenizer.json"},
    "distributed": {"threads_per_rank": 1},
    "logging": {"hash_frequency": 1, "measure_peak": false}
}
CONFIG
}

# run_case: prints differences and verdict of the case that was drawn.
run_case() {
    rm -rf "$folder/one" "$folder/mesh" "$folder/saved"
    if ! train one "1 1 1 1" "${model[@]}" --training.micro_batch_size=1 \
        --checkpoint.save_dir="$folder/one"; then
        echo "- - - FAILED: one rank: $(why one)"
        return
    fi
    if [ -z "$split_after" ]; then
        train mesh "$split" "${model[@]}" --checkpoint.save_dir="$folder/mesh" ||
            { echo "- - - FAILED: $(why mesh)"; return; }
    else
        train first "$split" "${model[@]}" --training.total_train_steps=$half \
            --checkpoint.save_dir="$folder/saved" ||
            { echo "- - - FAILED: $(why first)"; return; }
        cp "$folder/first.numbers" "$folder/both.numbers"
        train mesh "$split_after" "${model[@]}" --checkpoint.load_path="$folder/saved" \
            --checkpoint.save_dir="$folder/mesh" ||
            { echo "- - - FAILED: $(why mesh)"; return; }
        cat "$folder/mesh.numbers" >>"$folder/both.numbers"
        mv "$folder/both.numbers" "$folder/mesh.numbers"
    fi
    compare mesh $steps "$folder/one" "$folder/mesh"
}

mkdir -p "$folder"
make_data
refusals=0
ran=0
failed=0
start=$SECONDS
echo "mesh_fuzz: seed $seed, cases from $first, at most $ranks ranks"
for ((number = first; number < first + cases; number++)); do
    if [ "$seconds" -gt 0 ] && [ $((SECONDS - start)) -ge "$seconds" ]; then break; fi
    start_case "$number"
    draw_case
    read -r loss norm weights verdict < <(run_case)
    ran=$((ran + 1))
    precision=$dtype
    if [ "$strict" = true ]; then precision+=" strict"; fi
    told="$split"
    if [ -n "$split_after" ]; then told+=", then $split_after"; fi
    printf 'case %d: %s, tp cp pp dp %s: loss %s norm %s weights %s  %s\n' "$number" "$precision" \
        "$told" "$loss" "$norm" "$weights" "$verdict"
    case $verdict in
    ok | same) ;;
    *)
        failed=$((failed + 1))
        printf '  model: %s\n  repeat it with: scripts/mesh_fuzz.sh --seed=%s --case=%d --ranks=%s\n' \
            "${model[*]}" "$seed" "$number" "$ranks"
        ;;
    esac
    if [ "$only" -eq 1 ]; then printf '  model: %s\n' "${model[*]}"; fi
done
echo "mesh_fuzz: seed $seed, $ran cases in $((SECONDS - start)) s, $failed failed," \
    "$refusals drawn configurations refused"
[ "$failed" -eq 0 ] && [ "$ran" -gt 0 ]
