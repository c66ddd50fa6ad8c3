#!/usr/bin/env bash
# test_gpu.sh [BUILD] [STEP...] - the checks that need a GPU; the last line is "N passed, N failed".
#
# Steps, all if none is named:
#   verify    every case of every operator, every implementation
#   seeds     the first acceptance case of attention, 100 seeds
#   streams   graphs, planning in a capture, side streams, the default stream
#   large     over 2^31 elements through every operator (80 GB on the GPU, 64 GB on the host): the lines of the file LARGE
#             (tests/data/large.txt)
#   sanitize  small problems under compute-sanitizer; left out where it is not installed
#   python    the tests of the Python package, where python3 has torch and tvm_ffi
#   soak      random problems on 8 streams and 4 threads for SOAK_MINUTES (10)
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=${1:-build}
shift
steps=("$@")
[[ ${#steps[@]} -gt 0 ]] || steps=(verify seeds streams large sanitize python soak)
ckl=$build/ckl
passed=0
failed=0

count() { # count NAME STATUS: adds the "N passed, N failed" of $log
    local p=0 f=0
    [[ $(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -1) =~ ^([0-9]+)\ passed,\ ([0-9]+) ]] &&
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]}
    [[ $2 -ne 0 && $f -eq 0 ]] && f=1
    passed=$((passed + p)) failed=$((failed + f))
    echo "== $1: $p passed, $f failed, $((SECONDS - begin)) s"
}

verify() {
    "$ckl" verify --device cuda
}

seeds() {
    echo 'attention heads=8 q=512 kv=512 d=64' | "$ckl" verify --suite - --seeds 100 --device cuda
}

streams() {
    "$build/unit_gpu" 2>&1 | tee "$log.unit"
    local status=${PIPESTATUS[0]} good bad
    good=$(grep -c '\[       OK \]' "$log.unit")
    bad=$(grep '^\[  FAILED  \] test' "$log.unit" | sort -u | wc -l)
    echo "$good passed, $bad failed"
    return "$status"
}

large() { # one process a line: the host's memory is given back between
    local line good=0 bad=0
    while IFS= read -r line; do
        line=${line%%#*}
        [[ $line ]] || continue
        echo "-- $line"
        if "$ckl" run "$line" --device cuda 2>&1 | grep -vE '^(plan|prepared|device) '; then
            good=$((good + 1))
        else
            bad=$((bad + 1))
        fi
    done <"${LARGE:-tests/data/large.txt}"
    echo "$good passed, $bad failed"
    [[ $bad -eq 0 ]]
}

sanitize() {
    command -v compute-sanitizer >/dev/null || [[ -x /usr/local/cuda/bin/compute-sanitizer ]] || {
        echo "skipped: no compute-sanitizer"
        return
    }
    scripts/sanitize_gpu.sh "$ckl"
}

python() {
    python3 -c 'import torch, tvm_ffi' 2>/dev/null || {
        echo "skipped: the Python package: python3 has not both torch and tvm_ffi"
        return
    }
    CKL_LIBRARY=$(realpath "$build")/libcutekernellib.so PYTHONPATH=python python3 tests/python/run.py
}

soak() {
    "$ckl" soak --device cuda --minutes "${SOAK_MINUTES:-10}"
}

"$ckl" run add n=1 --device cuda >/dev/null || {
    echo "test_gpu: no GPU that can be used: 'ckl info' tells more" >&2
    exit 3
}
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
for step in "${steps[@]}"; do
    [[ $(type -t "$step") == function && $step != count ]] || {
        echo "test_gpu: there is no step $step" >&2
        exit 2
    }
    begin=$SECONDS
    "$step" 2>&1 | tee "$log"
    count "$step" "${PIPESTATUS[0]}"
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
