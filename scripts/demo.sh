#!/usr/bin/env bash
# demo.sh CKL - a first tour on whatever device is here; under two minutes with the build.
set -euo pipefail
cd "$(dirname "$0")/.."
ckl=${1:-build/ckl}

step() { # step TITLE COMMAND...: shows the command, runs it
    echo
    echo "# $1"
    shift
    echo "\$ $*" | sed "s|^\$ $ckl|\$ ckl|"
    "$@"
}

step "What is here" "$ckl" info
step "A matrix product through the Hopper kernel (TMA, clusters, wgmma) on an emulated H200, checked element by element" \
    "$ckl" run gemm m=256 n=256 k=256 a=f16 impl=sm90 --device emulator:h200
step "Why that kernel, and what it is made of" \
    "$ckl" explain gemm m=256 n=256 k=256 a=f16 --device emulator:h200
if "$ckl" help layout >/dev/null 2>&1; then
    step "A CuTe layout: 8 rows of 4 divided into tiles of 2" "$ckl" layout 'logical_divide((8,4):(4,1), 2:1)' --table
fi
if "$ckl" info | grep -q '^  cuda:0' && "$ckl" help bench >/dev/null 2>&1; then
    step "The same kernel on the GPU, beside cuBLAS" "$ckl" bench gemm m=8192 n=8192 k=8192 a=f16
fi

cat <<'END'

Go on with:
  ckl run gemm m=333 n=128 k=65 a=bf16     any problem, checked
  ckl verify                               every case of every operator
  ckl help                                 all commands
  include/cutekernellib/operators/gemm.h   the C API of one operator
  src/operators/add/                       the smallest operator: kernel, reference and cases
END
