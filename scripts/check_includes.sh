#!/usr/bin/env bash
# check_includes.sh - includes point one way:
# include <- base <- ir <- cute <- {device, plan} <- skeletons <- operators <- {ffi, lab} <- bench <- cli <- tests.
set -euo pipefail
cd "$(dirname "$0")/.."

# What each folder's files may include, as a pattern of the quoted path.
declare -A allowed=(
    [include/cutekernellib]='[a-z_]+\.h|\.\./[a-z]+\.h|operators/'
    [src/base]='base/|cutekernellib/'
    [src/ir]='ir/|base/|cutekernellib/'
    [src/cute]='cute/|ir/|base/|cutekernellib/'
    [src/device]='device/|ir/|base/|cutekernellib/'
    [src/plan]='plan/|device/|ir/|base/|cutekernellib/'
    [src/skeletons]='skeletons/|plan/|device/|cute/|ir/|base/|cutekernellib/'
    [src/operators]='operators/|skeletons/|plan/|device/|cute/|ir/|base/|cutekernellib/'
    [src/ffi]='ffi/|operators/|plan/|device/|ir/|base/|cutekernellib/'
    [lab]='lab/|operators/|skeletons/|plan/|device/|cute/|ir/|base/|cutekernellib/'
    [bench]='bench/|lab/|operators/|skeletons/|plan/|device/|cute/|ir/|base/|cutekernellib/'
    [tests]='[a-z_]+\.h|cli/|bench/|lab/|ffi/|operators/|skeletons/|plan/|device/|cute/|ir/|base/|cutekernellib/'
    [cli]='cli/|bench/|lab/|operators/|skeletons/|plan/|device/|cute/|ir/|base/|cutekernellib/'
)
ours='base|ir|cute|device|plan|skeletons|operators|ffi|lab|bench|cli|cutekernellib'
. scripts/checks.sh

fault() {
    echo "FAILED $1"
    failed=$((failed + 1))
}

for folder in include/* src/*; do
    [[ ! -d $folder || -n ${allowed[$folder]-} ]] || fault "$folder has no rule here"
done

for folder in "${!allowed[@]}"; do
    while IFS=: read -r file include; do
        path=${include#*[\"<]}
        if [[ $file =~ ^src/operators/conv/conv_(pointwise|products|im2col|kn2row|patches).[ch] && $path =~ ^operators/gemm/gemm_(plan|splitk).h$ ]]; then
            passed=$((passed + 1)) # filters of one pixel, and patches, are gemm's product, by its kernel
        elif [[ $file =~ ^src/operators/conv/conv(_epilogue)?.c && $path == operators/gemm/gemm_epilogues.h ]]; then
            passed=$((passed + 1)) # custom epilogues are those of gemm
        elif [[ $folder == src/operators && $path =~ ^operators/([a-z0-9_]+)/ && $file != src/operators/${BASH_REMATCH[1]}/* ]]; then
            fault "$file includes \"$path\": operators never include operators"
        elif [[ $path =~ ^(${allowed[$folder]}) ]]; then
            passed=$((passed + 1))
        elif [[ $file == src/device/device.c && $path == plan/plan.h ]]; then
            passed=$((passed + 1)) # closing a device forgets the plans cached for it
        else
            fault "$file includes \"$path\", which is above it"
        fi
    done < <(grep -rHoE --include='*.[ch]' "^ *# *include (\"[^\"]*|<($ours)/[^>]*)" "$folder")
done

while read -r file; do
    fault "$file knows the driver; only cuda*.c and nvml.c of src/device may"
done < <(grep -rlE 'dlopen|libcuda\.so' src --include='*.[ch]' | grep -vE '^src/device/(cuda|nvml)' || true)

report
