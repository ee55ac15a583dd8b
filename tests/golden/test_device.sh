#!/usr/bin/env bash
# Complete runs on the test device, whose memory the host cannot reach, against the CPU, bit for bit:
# training on several meshes, in strict mode and in fast mode, compressed gradients, evaluation, a
# checkpoint that another mesh continues, and generated text.
. "${SOURCE:-.}/tests/cli/lib.sh"
# shellcheck source=strict_hashes.sh
. "$source_folder/tests/golden/strict_hashes.sh"

on_device=--distributed.device=test d=--distributed
strict_start

# ---- strict mode, against the golden files

for name in fp32 fp32_cp; do strict_compare $name $on_device; done
for name in tp2_sp dp4_zero3 tp2_cp2_pp2_dp2; do strict_compare_mesh $name $on_device; done

# ---- fast mode, against the CPU

# same_bits ARGUMENTS...: the last step of both devices.
same_bits() {
    local cpu test
    cpu=$(strict_train cpu --training.strict=false "$@")
    test=$(strict_train test --training.strict=false "$@" $on_device)
    check "fast $*: the CPU has \"$cpu\", the test device \"$test\"" \
        test -n "$cpu" -a "$cpu" = "$test"
}

same_bits --model.dtype=bf16 $d.threads_per_rank=2
same_bits --model.dtype=fp16 --training.recompute=full
same_bits $d.dp_size=2 $d.compression=topk --training.grad_clip=0.5
same_bits $d.dp_size=2 $d.compression=int8
same_bits $d.tp_size=2 $d.sequence_parallel=true $d.pp_size=2 $d.algorithm=tree

# ---- evaluation, a checkpoint, another mesh, generated text

# train NAME ARGUMENTS...
train() {
    local name=$1
    shift
    expect 0 train "$folder/strict.json" --logging.run_dir="$folder/$name" "$@"
}

# numbers NAME: losses, norms and hashes of a run, and of its evaluations.
numbers() {
    grep -oE '"(step|loss|grad_norm|params_hash|eval_loss|val_loss)":[^,}]*' "$folder/$1/metrics.jsonl"
}

evaluation=(--dataset.validation_fraction=0.2 --logging.eval_frequency=1)
train whole "${evaluation[@]}"
train on_device "${evaluation[@]}" $on_device
check "evaluations are there" grep -q val_loss "$folder/whole/metrics.jsonl"
check "evaluated on the device, the numbers are those of the CPU" \
    cmp <(numbers whole) <(numbers on_device)

train saving $on_device $d.dp_size=2 $d.zero_stage=1 --training.gradient_accumulation_steps=2 \
    --training.total_train_steps=2 --checkpoint.save_dir="$folder/saved"
expect 0 checkpoint verify "$folder/saved/step-00000002"
for mesh in $d.tp_size=2 $d.pp_size=2; do
    got=$(strict_train resumed $on_device "$mesh" --checkpoint.load_path="$folder/saved")
    check "continued on $mesh: \"$got\"" test "$got" = "$(strict_train cpu)"
done

for device in cpu test; do
    expect 0 generate "$folder/saved/step-00000002" --prompt="and the" --max-tokens=40 --device=$device
    cp "$folder/out" "$folder/text.$device"
done
check "generated text" cmp "$folder/text.cpu" "$folder/text.test"
expect 2 train "$folder/strict.json" --distributed.device=cuda
says err 'distributed.device = "cuda": this build has no GPUs'
exit $((failures > 0))
