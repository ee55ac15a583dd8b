#!/usr/bin/env bash
# A level of instructions that this processor, or this build, has not got: every command that takes a
# level refuses it with status 1 and lists those that there are.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

train 0 run --checkpoint.save_dir="$folder/saves" --training.total_train_steps=2
saved=$folder/saves/step-00000002
have=$("$cyclotron" doctor --quick | sed -n 's/^ok *instructions *//p')
expect 0 doctor --quick --isa=ref
listed=$(tr ' ' '\n' <<<"ref $have" | sed '/^$/d' | paste -sd , - | sed 's/,/, /g')

# What a build is held to (-DCY_MAX_ISA), if to anything.
cap=$(sed -n 's/^CY_MAX_ISA:[A-Z]*=//p' "$(dirname "$cyclotron")/CMakeCache.txt" 2>/dev/null)

# refuses LEVEL COMMAND...: with the reason and the levels that there are.
refuses() {
    local level=$1
    shift
    expect 1 "$@"
    case " ${beyond:-} " in
    *" $level "*)
        says err "cyclotron: error: isa \"$level\": this build is held to $cap"
        says err "  hint: this build supports $listed"
        ;;
    *)
        says err "cyclotron: error: isa \"$level\": this processor does not support it"
        says err "  hint: this processor supports $listed"
        ;;
    esac
}

case $cap in
ref) beyond="avx2 avx512 avx512_bf16 amx" ;;
avx2) beyond="avx512 avx512_bf16 amx" ;;
avx512) beyond="avx512_bf16 amx" ;;
avx512_bf16) beyond="amx" ;;
esac
tried=0
for level in avx2 avx512 avx512_bf16 amx neon; do
    case " $have " in *" $level "*) continue ;; esac
    tried=$((tried + 1))
    refuses $level doctor --quick --isa=$level
    refuses $level bench kernel --isa=$level
    refuses $level bench step "$folder/tiny.json" --isa=$level --steps=1 --warmup=1
    refuses $level bench decode "$saved" --isa=$level
    refuses $level generate "$saved" --prompt="the king" --max-tokens=2 --isa=$level
    refuses $level eval "$saved" "$folder/text.txt" --max-tokens=64 --isa=$level
    refuses $level train "$folder/tiny.json" --logging.run_dir="$folder/no-run" --distributed.isa=$level
done
check "a level that is not here" [ "$tried" -gt 0 ] # no processor is of both families

finish
