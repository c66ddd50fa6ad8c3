#!/usr/bin/env bash
# verify_cute_implementation.sh [CKL] - kernels are written in CuTe only, and really use the hardware they claim.
set -euo pipefail
cd "$(dirname "$0")/.."
ckl=${1:-build/ckl}
. scripts/checks.sh

absent() { # absent PATTERN PATH...: no line of code (comments aside) matches; says which does
    local pattern=$1 found
    shift
    found=$(grep -rnE --include='*.[ch]' "$pattern" "$@" | grep -vE '^[^:]*:[0-9]+: *(/?\*|//)' || true)
    [[ -z $found ]] || {
        echo "$found"
        return 1
    }
}

# What PTX looks like: mnemonics with a state space or a type, and special registers.
ptx='\b(ld|st|red|atom)\.(global|shared|param|local|async|relaxed|acquire|release)|\b(mma|ldmatrix|stmatrix|shfl|bar|barrier)\.sync\.'
ptx+='|\bwgmma\.[a-z_]+\.sync|\bcp\.(async|reduce)\.(bulk|ca|cg|commit|wait)|\bmbarrier\.[a-z_]+\.|\bfence\.(proxy|acq)|\bbar\.sync\b *[0-9%]'
ptx+='|\b(mov|add|sub|mul|mad|fma|cvt|setp|selp|and|or|xor|shl|shr|min|max|neg|abs)\.([a-z0-9_]+\.)*[busf](16|32|64)|%(tid|ctaid|laneid|nctaid)\b'

finds() { # finds TEXT: a test that cannot fail proves nothing
    local sample found=0
    sample=$(mktemp -d)
    printf '    emit("%s");\n' "$1" >"$sample/sample.c"
    absent "$ptx" "$sample" >/dev/null || found=1
    rm -r "$sample"
    [[ $found -eq 1 ]]
}
check "the search finds a load" finds 'ld.global.v4.b32 {%r1}, [%rd1];'
check "the search finds an addition" finds 'add.rn.f32 %f1, %f2, %f3;'
check "the search finds a matrix instruction" finds 'wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16'
check "PTX text in kernels" absent "$ptx" src/operators src/cute
check "inline assembly" absent '\b(asm|__asm__|__asm)\b' src include cli
check "CUDA C in kernels" absent '__global__|__shared__|__device__|<<<|threadIdx|blockIdx' src include cli
mapfile -t others < <(find src -name '*.c' ! -path 'src/ir/ptx*')
check "PTX outside of the printer" absent '\.visible \.entry|\.reg \.' "${others[@]}"
check "no CUDA C++ files but the peers" test -z "$(find . \( -path ./.git -o -path "./build*" -o -path ./bench/peers \) -prune -o \( -name '*.cu' -o -name '*.cuh' \) -print)"

recorded() { # each function that kernel files may call and that makes a value, or nothing, is called at their line; says which is not
    local headers name missing=0
    mapfile -t headers < <(sed -nE 's/^#include "(cute\/.*)"$/src\/\1/p' src/cute/kernel.h)
    for name in $(sed -nE 's/^(val|void) ([A-Za-z0-9_]+)\(.*/\2/p' "${headers[@]}"); do
        [[ $name == combine_* ]] || grep -qw "$name" src/cute/kernel.h src/cute/kernel_calls.h || {
            echo "$name"
            missing=1
        }
    done
    return $missing
}
check "calls of kernel files record their line" recorded

says() { # says PATTERN COMMAND...: what the command prints matches
    local pattern=$1 printed
    shift
    printed=$("$@") && grep -qE "$pattern" <<<"$printed"
}

emits() { # emits LINE PATTERN: the PTX of the kernel that a line gets on the emulated H200 matches
    says "$2" "$ckl" explain "$1" --device emulator:h200 --ptx
}

hopper="gemm m=4096 n=4096 k=4096 a=f16 impl=sm90 config='cluster_m=2'"
check "sm90 gemm uses wgmma" emits "$hopper" 'wgmma\.mma_async'
check "sm90 gemm uses TMA" emits "$hopper" 'cp\.async\.bulk\.tensor'
check "sm90 gemm multicasts" emits "$hopper" 'multicast::cluster'
check "sm90 gemm synchronises clusters" emits "$hopper" 'barrier\.cluster\.arrive'
check "sm90 gemm launches clusters" says 'cluster of [2-9]' "$ckl" explain "$hopper" --device emulator:h200
check "sm90 gemm reallocates registers" emits "$hopper" 'setmaxnreg'
check "sm90 gemm is for sm_90a" emits "$hopper" '\.target +sm_90a'
attention="attention batch=4 heads=16 q=2048 kv=2048 d=128 causal=1"
check "sm90 attention uses wgmma" emits "$attention" 'wgmma\.mma_async'
check "sm90 attention uses TMA" emits "$attention" 'cp\.async\.bulk\.tensor\.4d'
check "sm90 attention reallocates registers" emits "$attention" 'setmaxnreg'
check "portable attention uses tensor cores" emits "$attention impl=sm80" 'mma\.sync'
check "portable gemm uses tensor cores" emits 'gemm m=512 n=512 k=512 a=f16 impl=tiled' 'mma\.sync'

report
