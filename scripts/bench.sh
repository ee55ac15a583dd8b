#!/usr/bin/env bash
# bench.sh BUILD: the benchmarks, with what they were taken on. Tables here, JSON in BUILD/bench, one
# line a figure in BUILD/bench/figures.txt.
#
# From the environment: PARTS="comm overlap" takes some of the parts that are listed below; CHECK=yes
# holds the figures to bench/bounds.txt and to what this machine reached before, one line a claim, and
# ends with status 1 where a bound is missed; BASELINE=store keeps the figures of the parts that ran
# as bench/baselines/MACHINE.txt; ISA=avx2 caps both our operators and PyTorch's at an instruction set.
#
# Steps: each configuration of bench/step. Peers: each bench/peers/torch-*.sh that finds its program
# prints one JSON object of the same names for the same configuration, so that lines divide.
# bench/peers/run.sh takes turns for a steadier quotient.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
program=$build/cyclotron
out=$build/bench
mkdir -p "$out"
figures=$out/figures.txt

# What a part takes on two idle cores: kernel, comm, overlap and algorithms some minutes each, step,
# peers and before longer, the others less than a minute.
all="kernel comm overlap bubble balance algorithms adamw buckets compression step peers start
    recompute decode answers faults run_cost"
read -r -a parts <<<"$(tr '\n' ' ' <<<"${PARTS:-$all}")"
for part in "${parts[@]}"; do
    case " $(tr -s '[:space:]' ' ' <<<"$all") before " in
    *" $part "*) ;;
    *) echo "bench: error: what is $part: $(tr -s '[:space:]' ' ' <<<"$all") before" >&2; exit 2 ;;
    esac
done

# The level everything is measured at, and the options that ask for it.
isa=${ISA:-auto}
step_options=()
kernel_options=()
claim_options=()
if [ "$isa" != auto ]; then
    step_options=("--distributed.isa=$isa")
    kernel_options=("--isa=$isa")
    claim_options=("$isa")
    case $isa in
    avx2) export ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 ;;
    avx512) export ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE ;;
    avx512_bf16) export ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 ;;
    amx) ;;
    *) echo "bench: error: ISA=$isa: avx2, avx512, avx512_bf16 or amx" >&2; exit 2 ;;
    esac
fi

# field FILE NAME: a number of a JSON object.
field() {
    sed -n "s/.*\"$2\": *\\([-+0-9.eE]*\\).*/\\1/p" "$1" | head -n 1
}

# figure NAME VALUE UNIT, or figure NAME - REASON.
figure() { printf '%s %s %s\n' "$1" "$2" "$3" >>"$figures"; }

# quotient NAME UNIT OVER UNDER: the figure OVER / UNDER.
quotient() { figure "$1" "$(awk "BEGIN { printf \"%.4f\", $3 / $4 }")" "$2"; }

# claims PROGRAM...: the figures that a program of bench/claims prints.
claims() {
    local told
    echo "-- $1"
    told=$("$build/bench/claims/$1" "${@:2}")
    printf '%s\n' "$told" | tee -a "$figures"
}

# measure CONFIG NAME OPTION...: a training step into OUT/step-NAME.json.
measure() {
    "$program" bench step "$1" ${step_options[@]+"${step_options[@]}"} "${@:3}" --json \
        >"$out/step-$2.json.part"
    mv "$out/step-$2.json.part" "$out/step-$2.json"
}

# measured NAME: the same, once a call of this script.
measured() {
    [ "$out/step-$1.json" -nt "$out/started" ] || measure "bench/step/$1.json" "$1"
}

bench_kernel() {
    "$program" bench kernel ${kernel_options[@]+"${kernel_options[@]}"} --json >"$out/kernel.json.part"
    mv "$out/kernel.json.part" "$out/kernel.json"
    echo "kernel: $out/kernel.json"
    # The matrix products and attention by name, dtype and shape.
    sed -nE 's/.*"op": "(matmul[a-z_]*|attention[a-z_]*)", "dtype": "([a-z0-9]+)", "shape": "([0-9x]+)".*"gflop_s": ([0-9.e+]+).*/kernel.\1_\2_\3 \4 GFLOP\/s/p' \
        "$out/kernel.json" >>"$figures"
}

# comm_figures BACKEND PREFIX: the default all_reduce is called native where it is no other.
comm_figures() {
    awk -F '[:,}]' -v wanted="$1" -v prefix="$2" '
        /"op":/ {
            gsub(/"/, "")
            op = $2; algorithm = $4; backend = $6; bytes = $10; us = $12; rate = $14
            if (backend != wanted || algorithm == "MPI") next
            if (op == "send" && bytes == 67108864) send = rate
            if (op == "neighbour" && bytes == 67108864) neighbour = rate
            if (op != "all_reduce") next
            if (algorithm == "ring" && bytes == 67108864) ring = rate
            if (algorithm == "auto") auto[bytes] = us
            if (algorithm == "native") native[bytes] = us
            if (!(bytes in best) || us < best[bytes]) best[bytes] = us
        }
        END {
            printf "%ssend_64mb %s GB/s\n%sring_64mb %s GB/s\n", prefix, send, prefix, ring
            printf "%sring_over_neighbour_64mb %.4f of-bandwidth\n", prefix, ring / neighbour
            for (bytes in best) {
                mine = bytes in auto ? auto[bytes] : native[bytes]
                if (bytes >= 1024 && mine / best[bytes] > worst) worst = mine / best[bytes]
            }
            printf "%sauto_over_best %.4f of-best\n", prefix, worst
        }' "$out/comm.json" | tee -a "$figures"
}

# Two threads, and two processes where there is MPI.
bench_comm() {
    "$program" bench comm --json >"$out/comm.json.part"
    mv "$out/comm.json.part" "$out/comm.json"
    echo "comm: $out/comm.json"
    comm_figures threads comm.
    if grep -q '"backend":"mpi"' "$out/comm.json"; then
        comm_figures mpi comm.mpi_
    else
        figure comm.mpi_ring_over_neighbour_64mb - "no MPI"
        figure comm.mpi_auto_over_best - "no MPI"
    fi
}

# A model with many small parameters: buckets against a message a parameter, medians of five turns. Over
# links of 50 us and 100 MB a second, which take no core; and over MPI, where the model has 32 features, so
# that messages weigh more than products on any processor.
bench_buckets() {
    local way _ small
    : >"$out/buckets-link.txt"
    for _ in 1 2 3 4 5; do
        for way in naive bucketed; do
            "$program" bench step bench/step/many-small.json --json --warmup=5 --steps=20 --link-us=50 \
                --link-gb-s=0.1 --logging.measure_peak=false --distributed.dp_reduce="$way" \
                >"$out/buckets-link-$way.json"
        done
        awk "BEGIN { print $(field "$out/buckets-link-bucketed.json" tok_s) / $(field "$out/buckets-link-naive.json" tok_s) }" |
            tee -a "$out/buckets-link.txt"
    done
    figure buckets.bucketed_over_naive_link "$(sort -g "$out/buckets-link.txt" | sed -n 3p)" of-rate
    if ! "$program" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
        figure buckets.bucketed_over_naive - "no MPI"
        return
    fi
    small=(--warmup=10 --steps=60 --model.hidden_size=32 --model.intermediate_size=64
        --model.num_attention_heads=2 --model.num_key_value_heads=1)
    : >"$out/buckets.txt"
    for _ in 1 2 3 4 5; do
        for way in naive bucketed; do
            OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 \
                "$program" bench step bench/step/many-small.json --json "${small[@]}" \
                --distributed.dp_reduce="$way" >"$out/buckets-$way.json"
        done
        awk "BEGIN { print $(field "$out/buckets-bucketed.json" tok_s) / $(field "$out/buckets-naive.json" tok_s) }" |
            tee -a "$out/buckets.txt"
    done
    figure buckets.bucketed_over_naive "$(sort -g "$out/buckets.txt" | sed -n 3p)" of-rate
}

# Two ranks over a link of 20 MB a second.
bench_compression() {
    local kind
    for kind in none int8 topk; do
        measure bench/step/hidden-256-bf16.json "link-$kind" --warmup=1 --steps=5 \
            --training.micro_batch_size=2 --distributed.dp_size=2 --distributed.threads_per_rank=1 \
            --distributed.bucket_mb=4 --distributed.compression="$kind" \
            --distributed.topk_warmup_steps=0 --link-gb-s=0.02 --link-us=50 \
            --logging.measure_peak=false
        echo "$kind: $(field "$out/step-link-$kind.json" tok_s) tokens/s"
    done
    quotient compression.int8_over_dense of-time "$(field "$out/step-link-none.json" tok_s)" \
        "$(field "$out/step-link-int8.json" tok_s)"
    quotient compression.topk_over_int8 of-time "$(field "$out/step-link-int8.json" tok_s)" \
        "$(field "$out/step-link-topk.json" tok_s)"
}

heads() {
    printf '%-28s %-14s %9s %9s %9s %8s %8s %8s\n' step by tok/s least most MFU GiB "first s"
}
row() {
    printf '%-28s %-14s %9.1f %9.1f %9.1f %7.2f%% %8.2f %8.1f\n' "$1" "$2" "$(field "$3" tok_s)" \
        "$(field "$3" tok_s_min)" "$(field "$3" tok_s_max)" \
        "$(awk "BEGIN { print 100 * $(field "$3" mfu) }")" "$(field "$3" peak_rss_gb)" \
        "$(field "$3" first_step_s)"
}

bench_step() {
    local config name
    heads
    for config in bench/step/*.json; do
        [ -e "$config" ] || { echo "bench: error: no configuration in bench/step" >&2; exit 1; }
        name=$(basename "$config" .json)
        measured "$name"
        row "$name" cyclotron "$out/step-$name.json"
        figure "step.$name" "$(field "$out/step-$name.json" tok_s)" tok/s
    done
    figure step.bf16_of_peak "$(field "$out/step-smollm-135m-bf16.json" mfu)" of-peak
    figure step.fp32_of_peak "$(field "$out/step-smollm-135m-fp32.json" mfu)" of-peak
}

# peer NAME COMPILED|EAGER CLAIM...: PyTorch on the same configuration; a CLAIM is the name of a figure
# behind its colon: rate, memory, or recompute for the memory of our recomputation.
peer() {
    local name=$1 by=torch-$2 status=0 claim ours theirs
    shift 2
    measured "$name"
    bash "bench/peers/$by.sh" "bench/step/$name.json" >"$out/step-$name-$by.json" || status=$?
    ours=$out/step-$name.json theirs=$out/step-$name-$by.json
    case $status in
    0) row "$name" cyclotron "$ours"; row "$name" "$by" "$theirs" ;;
    77) echo "$name: $by is not here" ;; # as tests skip
    *) echo "bench: error: bench/peers/$by.sh bench/step/$name.json ended with status $status" >&2; exit 1 ;;
    esac
    for claim in "$@"; do
        if [ "$status" -eq 77 ]; then
            figure "peers.${claim#*:}" - "PyTorch is not installed"
            continue
        fi
        case $claim in
        rate:*) quotient "peers.${claim#*:}" of-rate "$(field "$ours" tok_s)" "$(field "$theirs" tok_s)" ;;
        memory:*)
            quotient "peers.${claim#*:}" of-memory "$(field "$ours" peak_rss_gb)" "$(field "$theirs" peak_rss_gb)"
            ;;
        recompute:*)
            measured "$name-recompute"
            quotient "peers.${claim#*:}" of-memory "$(field "$out/step-$name-recompute.json" peak_rss_gb)" \
                "$(field "$theirs" peak_rss_gb)"
            ;;
        esac
    done
}

bench_peers() {
    local name
    heads
    peer smollm-135m-bf16 compiled rate:bf16_over_compiled memory:bf16_memory_over_compiled \
        recompute:recompute_memory_over_compiled
    peer smollm-135m-bf16 eager rate:bf16_over_eager
    peer smollm-135m-fp32 compiled rate:fp32_over_compiled
    peer smollm-135m-fp32 eager rate:fp32_over_eager
    for name in smollm-135m-bf16-1-thread sequence-4096-bf16 hidden-1024-bf16 hidden-256-bf16; do
        peer "$name" compiled "rate:${name}_over_compiled"
    done
}

# Five starts one after the other: how long after the process each one's first step was done, less a
# step; the median.
bench_start() {
    local first=$out/first-steps.txt
    : >"$first"
    for _ in 1 2 3 4 5; do
        measure bench/step/smollm-135m-bf16.json start --warmup=1 --steps=1 --logging.measure_peak=false
        awk "BEGIN { printf \"%.2f\\n\",
            $(field "$out/step-start.json" first_step_s) - 2048 / $(field "$out/step-start.json" tok_s) }" |
            tee -a "$first"
    done
    figure start.beyond_a_step "$(sort -g "$first" | sed -n 3p)" s
}

bench_recompute() {
    measured smollm-135m-bf16
    measured smollm-135m-bf16-recompute
    local plain recomputed
    plain=$(field "$out/step-smollm-135m-bf16.json" tok_s)
    recomputed=$(field "$out/step-smollm-135m-bf16-recompute.json" tok_s)
    figure recompute.time_added "$(awk "BEGIN { printf \"%.4f\", $plain / $recomputed - 1 }")" of-step
}

# A model with random weights of the first shape.
saved_model() {
    [ -d "$out/saves" ] && [ "$out/checkpoint.json" -nt "$out/started" ] && return
    rm -rf "$out/saves"
    "$program" bench checkpoint bench/step/smollm-135m-bf16.json --folder="$out" --rounds=1 --json \
        >"$out/checkpoint.json"
}

# Its first token after 512 and its further ones, and 128 tokens behind next to nothing, as
# llama-bench measures what the aim was taken from. 2 operations a parameter and token, as
# llama.cpp's share of 0.60 was counted.
bench_decode() {
    saved_model
    "$program" bench decode "$out/saves" ${kernel_options[@]+"${kernel_options[@]}"} \
        --prompt-tokens=512 --json >"$out/decode-512.json"
    "$program" bench decode "$out/saves" ${kernel_options[@]+"${kernel_options[@]}"} \
        --prompt-tokens=16 --tokens=128 --json >"$out/decode.json"
    measured smollm-135m-bf16
    figure decode.tokens "$(field "$out/decode.json" decode_tok_s)" tok/s
    figure decode.tokens_512 "$(field "$out/decode-512.json" decode_tok_s)" tok/s
    figure decode.of_read "$(field "$out/decode.json" share_of_read)" of-bandwidth
    figure decode.of_reading_beside "$(field "$out/decode.json" share_beside)" of-bandwidth
    figure decode.of_read_512 "$(field "$out/decode-512.json" share_of_read)" of-bandwidth
    figure decode.of_reading_beside_512 "$(field "$out/decode-512.json" share_beside)" of-bandwidth
    local step=$out/step-smollm-135m-bf16.json
    quotient decode.prefill_of_peak of-peak \
        "(512 * 2 * $(field "$step" params) / 1e6 / $(field "$out/decode-512.json" first_token_ms))" \
        "$(field "$step" peak_gflop_s)"
}

bench_answers() {
    if ! command -v python3 >/dev/null; then
        figure answers.worst_off - "no python3"
        return
    fi
    saved_model
    CYCLOTRON=$program bash bench/answer_time.sh "$out/saves" | tee "$out/answers.txt" || true
    figure answers.worst_off "$(awk '$NF == "%" && $(NF - 1) ~ /^[0-9]+$/ {
        off = $(NF - 3) / 100
        if (off < 0) off = -off
        if (off > worst) worst = off
        rows++
    } END { print rows > 0 ? worst : "nan" }' "$out/answers.txt")" of-time
}

# How long a job takes to end when a process of it is stopped or killed.
bench_faults() {
    if ! "$program" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
        figure faults.job_ends - "no MPI"
        return
    fi
    FIGURES=$(realpath "$figures") CYCLOTRON=$(realpath "$program") SOURCE=$PWD \
        bash tests/cli/test_stopped_rank_slow.sh
}

# What a run does beside its steps, of a step of the first shape.
bench_run_cost() {
    measured smollm-135m-bf16
    local step=$out/step-smollm-135m-bf16.json
    CYCLOTRON=$(realpath "$program") bash bench/run_cost.sh \
        "$(awk "BEGIN { print $(field "$step" batch) * $(field "$step" seq) / $(field "$step" tok_s) }")" \
        "$(field "$step" threads)" | tee "$out/run-cost.txt"
    grep '^run_cost\.' "$out/run-cost.txt" >>"$figures"
}

bench_before() {
    if ! git rev-parse --quiet --verify HEAD~1 >/dev/null 2>&1; then
        figure before.over_last_commit - "no commit before this one"
        return
    fi
    figure before.over_last_commit "$(scripts/regression.sh "$build" | tee /dev/stderr |
        sed -nE 's/^regression: .*: ([0-9.]+) of the speed .*/\1/p')" of-rate
}

"$program" --version >"$out/program.txt"
processor=$(grep -m 1 '^model name' /proc/cpuinfo | cut -d : -f 2 | sed 's/^ *//')
[ -n "$processor" ] || processor=$(uname -m)
level=$isa
if [ "$isa" = auto ]; then
    level=$("$program" doctor | sed -nE 's/^ok +kernels +([a-z0-9_]+),.*/\1/p')
fi
{
    printf '%s\n%s cores, %s, instructions %s\n' "$processor" "$(nproc)" "$(uname -sr)" "$level"
    git describe --always --dirty 2>/dev/null || true
} >"$out/machine.txt"
cat "$out/machine.txt"
machine=$(printf '%s %s %s cores' "$processor" "$level" "$(nproc)" |
    tr '[:upper:]' '[:lower:]' | tr -cs 'a-z0-9_' '-')
baseline=bench/baselines/$machine.txt

: >"$figures"
touch "$out/started"
for part in "${parts[@]}"; do
    printf '\n== %s\n' "$part"
    case $part in
    kernel) bench_kernel ;;
    comm) bench_comm ;;
    overlap | bubble | balance | algorithms) claims "$part" ;;
    adamw) claims adamw ${claim_options[@]+"${claim_options[@]}"} ;;
    buckets) bench_buckets ;;
    compression) bench_compression ;;
    step) bench_step ;;
    peers) bench_peers ;;
    start) bench_start ;;
    recompute) bench_recompute ;;
    decode) bench_decode ;;
    answers) bench_answers ;;
    faults) bench_faults ;;
    run_cost) bench_run_cost ;;
    before) bench_before ;;
    esac
done
rm -rf "$out/saves"

if [ "${BASELINE:-}" = store ]; then
    mkdir -p bench/baselines
    {
        printf '# %s, %s cores, %s; make bench BASELINE=store\n' "$processor" "$(nproc)" "$level"
        # Rates of the parts that ran, and what an earlier call stored of the others.
        {
            grep -v '^#' "$baseline" 2>/dev/null || true
            grep -E ' (tok/s|GB/s|MB/s|GFLOP/s)$' "$figures" || true
        } | awk '{ last[$1] = $0 } END { for (name in last) print last[name] }' | sort
    } >"$baseline.part"
    mv "$baseline.part" "$baseline"
    echo "bench: stored $baseline"
fi
if [ "${CHECK:-}" = yes ]; then
    printf '\n'
    [ -e "$baseline" ] || echo "bench: no $baseline: BASELINE=store keeps this machine's figures"
    scripts/bench_check.sh "$figures" bench/bounds.txt "$baseline" "$level" "${parts[@]}"
fi
