#!/usr/bin/env bash
# verify_cute_implementation.sh [CKL] - kernels are written in CuTe only, and really use the hardware they claim.
set -euo pipefail
cd "$(dirname "$0")/.."
ckl=${1:-build/ckl}
passed=0
failed=0

check() { # check WHAT COMMAND...: the command succeeds
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "FAILED $what"
        failed=$((failed + 1))
    fi
}

absent() { # absent PATTERN PATH...: no line of code (comments aside) matches; says which does
    local pattern=$1 found
    shift
    found=$(grep -rnE --include='*.[ch]' "$pattern" "$@" | grep -vE '^[^:]*:[0-9]+: *(/?\*|//)' || true)
    [[ -z $found ]] || {
        echo "$found"
        return 1
    }
}

# PTX is text such as "ld.global.v4" or "wgmma.mma_async" inside a string; CUDA C has its own words.
ptx='"[^"]*(\b(ld|st|mov|add|mul|fma|cvt|setp|bar|atom|red|shfl|mbarrier|cp|wgmma|mma|ldmatrix|stmatrix|fence)\.[a-z0-9_]+(\.[a-z0-9_]+)*|%(tid|ctaid|r[0-9]))'
check "PTX text in kernels" absent "$ptx" src/operators src/cute
check "inline assembly" absent '\b(asm|__asm__|__asm)\b' src include cli
check "CUDA C in kernels" absent '__global__|__shared__|__device__|<<<|threadIdx|blockIdx' src include cli
mapfile -t others < <(find src -name '*.c' ! -path 'src/ir/ptx*')
check "PTX outside of the printer" absent '\.visible \.entry|\.reg \.' "${others[@]}"
check "no CUDA C++ files" test -z "$(find . -path ./.git -prune -o \( -name '*.cu' -o -name '*.cuh' \) -print)"

ptx_of() { # ptx_of LINE: the PTX of the kernel that a line gets on the emulated H200
    "$ckl" explain "$1" --device emulator:h200 --ptx
}

emits() { # emits LINE PATTERN
    local text
    text=$(ptx_of "$1") && grep -qE "$2" <<<"$text"
}

hopper='gemm m=4096 n=4096 k=4096 a=f16 impl=sm90'
check "sm90 gemm uses wgmma" emits "$hopper" 'wgmma\.mma_async'
check "sm90 gemm uses TMA" emits "$hopper" 'cp\.async\.bulk\.tensor'
check "sm90 gemm multicasts" emits "$hopper" 'multicast::cluster'
check "sm90 gemm launches clusters" emits "$hopper" '\.reqnctapercluster +[2-9]'
check "sm90 gemm reallocates registers" emits "$hopper" 'setmaxnreg'
check "sm90 gemm is for sm_90a" emits "$hopper" '\.target +sm_90a'
check "portable gemm uses tensor cores" emits 'gemm m=512 n=512 k=512 a=f16 impl=tiled' 'mma\.sync'

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
