#!/usr/bin/env bash
# bench_all.sh [CKL] - measures every suite on the GPU, with the peers that are there, and brings the tables up to date.
#
# Results go to bench/results/, all suites in one process. SECONDS_A_ROW (0.2 if not set) is the time of sampling a row. Most of the time goes into data,
# checks and torch.compile, which takes many seconds a row: CKL_TORCH_COMPILE=0 leaves it out, which is for trying things out.
# SUITES="norm softmax" measures these alone. A failed row fails at the end, after the others.
set -euo pipefail
cd "$(dirname "$0")/.."

export OMP_WAIT_POLICY=passive # threads that wait take no core from those that work
ckl=${1:-build/ckl}
seconds=${SECONDS_A_ROW:-0.2}
suites=${SUITES:-$(basename -as .txt bench/suites/*.txt | grep -vE -- '-ladder$|^smoke|^reduce-acceptance$')}
failed=

"$ckl" run add n=1000 --device cuda >/dev/null # without a GPU it says why
[[ -e $(dirname "$ckl")/libckl_cub_peer.so ]] || scripts/build-peers "$(dirname "$ckl")" || echo "bench_all: without CUB"
files=$(printf ',bench/suites/%s.txt' $suites)
"$ckl" bench --suite "${files#,}" --seconds "$seconds" --json bench/results/ || failed=" suites"
for ladder in reduce-ladder attention-ladder gemm-ladder conv-ladder; do
    "$ckl" bench --ladder --suite "bench/suites/$ladder.txt" --seconds "$seconds" --json "bench/results/$ladder.json" ||
        failed="$failed $ladder"
done
python3 scripts/update_performance.py
[[ -z $failed ]] || {
    echo "bench_all: failed:$failed" >&2
    exit 1
}
