#!/usr/bin/env bash
# Compressed gradients over slow links: two ranks, the step in milliseconds, what rank 0 sends, and
# how long it waits, for each kind at each bandwidth. Then naive against bucketed reduction of a
# model with many small parameters, over MPI where there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
cyclotron=${CYCLOTRON:-build/cyclotron}
links=${LINKS:-0.02 0.1 1}

# field NAME: a number of a JSON object on stdin.
field() {
    sed -n "s/.*\"$1\": *\\([-+0-9.eE]*\\).*/\\1/p"
}

printf '%-8s %-8s %10s %10s %12s\n' GB/s kind 'step ms' 'MB sent' 'waiting ms'
for link in $links; do
    for kind in none int8 topk; do
        line=$("$cyclotron" bench step bench/step/hidden-256-bf16.json --json --warmup=2 --steps=7 \
            --training.micro_batch_size=4 --distributed.dp_size=2 --distributed.threads_per_rank=1 \
            --distributed.bucket_mb=4 --distributed.compression="$kind" \
            --distributed.topk_warmup_steps=0 --link-gb-s="$link" \
            --link-us=50 2>/dev/null)
        rate=$(field tok_s <<<"$line")
        dp=${line#*\"dimension\": \"dp\"}
        printf '%-8s %-8s %10.1f %10.2f %12.1f\n' "$link" "$kind" \
            "$(awk "BEGIN { print 2 * 4 * 256 / $rate * 1e3 }")" \
            "$(awk "BEGIN { print $(field bytes <<<"$dp") / 1048576 }")" \
            "$(awk "BEGIN { print $(field exposed_s <<<"$dp") * 1e3 }")"
    done
done

start=()
if command -v mpirun >/dev/null; then start=(mpirun -n 2); fi
printf '\n%-10s %12s %12s %12s\n' 'dp_reduce' tokens/s least most
for _ in 1 2 3; do
    for way in naive bucketed; do
        line=$("${start[@]}" "$cyclotron" bench step bench/step/many-small.json --json --warmup=10 \
            --steps=60 --distributed.dp_reduce="$way" 2>/dev/null)
        printf '%-10s %12.0f %12.0f %12.0f\n' "$way" "$(field tok_s <<<"$line")" \
            "$(field tok_s_min <<<"$line")" "$(field tok_s_max <<<"$line")"
    done
done
