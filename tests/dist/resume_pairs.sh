#!/usr/bin/env bash
# A checkpoint of any mesh goes on on any other: saved on one, continued on the other, in both
# directions, against one rank that was never stopped.
#
#   resume_pairs.sh PAIR...      a pair is two names of the list in scripts/mesh_runs.sh, as one:tp2
#
# One line a direction with the worst differences after the resume: of losses and gradient norms,
# and of the weights at the end; fails when one exceeds the bound of the dtype. DTYPE (fp64) and STRICT
# (false) are taken from the environment; with STRICT=true all must be the same bit for bit, moments
# too. TABLE names a file for these lines as rows of a table.
set -euo pipefail
source=${SOURCE:-.}
# shellcheck source=../../scripts/mesh_runs.sh
. "$source/scripts/mesh_runs.sh"
program=${CYCLOTRON:-build/cyclotron}
dtype=${DTYPE:-fp64}
strict=${STRICT:-false}
saved_at=3
last=6
if [ -n "${SANITIZED:-}" ]; then saved_at=1 last=3; fi # the same code as in the other steps
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Lengths that the pieces of 2, 3 and 4 ranks divide, in strict mode into blocks of 32; 24 samples.
length=48 width=64
if [ "$strict" = true ]; then length=384 width=256; fi
make_data
make_config $last "\"hidden_size\": 32, \"intermediate_size\": $width, \"vocab_size\": 320" \
    "\"seq_length\": $length, \"global_batch_size\": 24, \"learning_rate\": 3e-3,
        \"lr_schedule\": \"cosine\", \"lr_decay_steps\": $last, \"warmup_steps\": 2"

declare -A saved
# save MESH: three steps of the mesh and a checkpoint, once.
save() {
    if [ -n "${saved[$1]:-}" ]; then return; fi
    train saved "$(words_of "$1")" --training.total_train_steps=$saved_at \
        --checkpoint.save_dir="$folder/$1" || { why saved; return 1; }
    saved[$1]=yes
}

failed=0
count=0
# follow FROM TO: continues on TO what FROM saved.
follow() {
    local loss=- norm=- weights=- verdict
    save "$1"
    rm -rf "$folder/state"
    if train next "$(words_of "$2")" --checkpoint.load_path="$folder/$1" \
        --checkpoint.save_dir="$folder/state"; then
        read -r loss norm weights verdict < <(compare next $((last - saved_at)) "$folder/whole" \
            "$folder/state")
    else
        verdict="FAILED: $(why next)"
    fi
    count=$((count + 1))
    case $verdict in
    ok | same) ;;
    *) failed=$((failed + 1)) ;;
    esac
    printf '%-8s -> %-8s %s %s %s  %s\n' "$1" "$2" "$loss" "$norm" "$weights" "$verdict"
    if [ -n "${TABLE:-}" ]; then
        printf '| %s | %s | %s | %s | %s | %s |\n' "$1" "$2" "$loss" "$norm" "$weights" "$verdict" \
            >>"$TABLE"
    fi
}

train one "1 1 1 1" --checkpoint.save_dir="$folder/whole" || { why one >&2; exit 1; }
for pair in "$@"; do
    follow "${pair%:*}" "${pair#*:}"
    follow "${pair#*:}" "${pair%:*}"
done
echo "resume: $count continuations in $dtype, $failed of them not the run of one rank"
[ "$failed" -eq 0 ]
