#!/usr/bin/env bash
# Training over nodes: what leaves each node in a step is what the two levels say, as threads and as
# processes of MPI; nodes that are not alike; one node, which is told; and the choice that auto made,
# which is saved with the run and starts the same run again.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# dp NAME FIELD: of the traffic of data parallelism in the run's second step.
dp() {
    grep '^{"step":2,"tokens"' "$folder/$1/metrics.jsonl" | grep -o '"dp":{[^}]*}' |
        grep -oE "\"$2\":[0-9]+" | cut -d: -f2
}

# crosses NAME RANKS NODES: of n bytes that are added over P ranks, 2 (P - 1) n are sent in all, and
# 2 (K - 1) / K n leave each of K nodes.
crosses() {
    local all between
    all=$(dp "$1" bytes)
    between=$(dp "$1" bytes_between_nodes)
    holds "$1: $between of $all bytes leave their node" \
        "${all:-0} > 100000 && ${between:-0} * ($2 - 1) == ${all:-0} * ($3 - 1)"
}

# nodes NAME RANKS NODES OPTIONS...: a run over several nodes.
nodes() {
    local name=$1 ranks=$2 count=$3
    shift 3
    train 0 "$name" --training.total_train_steps=2 --training.micro_batch_size=1 \
        --training.gradient_accumulation_steps=1 --distributed.dp_size="$ranks" "$@"
    says err "all_reduce: hierarchical, $ranks ranks on $count nodes"
    crosses "$name" "$ranks" "$count"
}

two="--distributed.algorithm=hierarchical --distributed.ranks_per_node=2"
# shellcheck disable=SC2086 # options
{
    nodes four 4 2 $two
    nodes eight 8 4 $two
    nodes five 5 3 $two # the last node has one rank
    nodes turn 8 4 $two --distributed.tp_size=1 --distributed.dp_reduce=naive
}
nodes seven 7 2 --distributed.algorithm=hierarchical --distributed.ranks_per_node=5

# Replicas that are neighbours nowhere: each tensor-parallel pair is a node, and both of its ranks
# have replicas on the other one.
train 0 apart --training.total_train_steps=2 --distributed.tp_size=2 --distributed.dp_size=2 \
    --distributed.algorithm=hierarchical --distributed.ranks_per_node=2
crosses apart 2 2
check "tensor parallelism stays on its node" test "$(grep -c '"tp":{[^}]*between' "$folder/apart/metrics.jsonl")" = 0

# The backend's own deal with every other rank: 2 q / P n of each rank go to the q ranks elsewhere.
train 0 own --training.total_train_steps=2 --training.micro_batch_size=1 --distributed.dp_size=4 \
    --distributed.algorithm=native --distributed.ranks_per_node=2
holds "bytes between nodes without levels" "$(dp own bytes_between_nodes) * 3 == $(dp own bytes) * 2"

# One node is told, and is no level.
train 0 one --training.total_train_steps=2 --distributed.dp_size=2 --distributed.algorithm=hierarchical
says err 'hierarchical has nothing to do, all ranks are on one node'
check "nothing leaves the only node" test -z "$(dp one bytes_between_nodes)"

# ---- auto

train 0 auto --training.total_train_steps=4 --training.micro_batch_size=1 --distributed.dp_size=4 \
    --logging.hash_frequency=1
check "auto is saved as what it came to" grep -qE \
    '"algorithm": "(native|dp:[a-z0-9<=,]+)"' "$folder/auto/config.json"
# Whatever was chosen, another choice and the saved one have the same bits.
for algorithm in native 'dp:tree' 'dp:doubling<=64,tree<=4096,native'; do
    train 0 again --training.total_train_steps=4 --training.micro_batch_size=1 \
        --distributed.dp_size=4 --logging.hash_frequency=1 --distributed.algorithm="$algorithm"
    same "losses and hashes with $algorithm" "$(losses auto)" "$(losses again)"
    check "$algorithm is what is saved" grep -qF "\"algorithm\": \"$algorithm\"" "$folder/again/config.json"
    check "it is told" test "$(grep -c "^all_reduce: $algorithm\$" "$folder/err")" = \
        "$([ "$algorithm" = native ] && echo 0 || echo 1)"
done
cp "$folder/again/config.json" "$folder/saved.json"
expect 0 train "$folder/saved.json" --logging.run_dir="$folder/rerun"
same "a run from the saved configuration" "$(losses auto)" "$(losses rerun)"
train 2 wrong --distributed.dp_size=2 --distributed.algorithm='dp:forest'
says err 'distributed.algorithm = "dp:forest": there is none'

# ---- processes

if ! "$cyclotron" --version | grep -q '^backends:.* mpi' || ! command -v mpirun >/dev/null; then
    echo "no MPI: processes are not tested"
    finish
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
program=$cyclotron
mpi() { # RANKS
    printf '#!/bin/sh\nexec mpirun --oversubscribe -n %s %s "$@"\n' "$1" "$program" >"$folder/mpi"
    chmod +x "$folder/mpi"
    cyclotron=$folder/mpi
}
mpi 4
# shellcheck disable=SC2086 # options
nodes processes 4 2 $two
train 0 machine --training.total_train_steps=2 --training.micro_batch_size=1 \
    --distributed.dp_size=4 --distributed.algorithm=hierarchical
says err 'all ranks are on one node'
train 0 auto_mpi --training.total_train_steps=4 --training.micro_batch_size=1 \
    --distributed.dp_size=4 --logging.hash_frequency=1
same "losses and hashes of processes" "$(losses auto)" "$(losses auto_mpi)"
finish
