#!/usr/bin/env bash
# bench_sample.sh [options] [OPERATOR ...] - measures a random sample of what users have, of every operator if none is named.
#
#   --count N       problems of an operator (200)
#   --seed S        of the draw (1); `ckl sample` prints the lines
#   --seconds T     for all operators together (3600): no problem begins later
#   --ahead T       so long at most before that, processes run the peers of convolutions and attention once: their libraries compile for
#                   every new shape, half a second each, and the driver keeps that on disk (0)
#   --bytes B       the largest problem (2^30)
#   --dtype T       all problems have this type, as of `ckl sample`; files are OPERATOR-T.json
#   --results DIR   for a file OPERATOR.json each (bench/results/sample), written every few seconds: whatever stops the run, what
#                   was measured stays, and as much of each operator: their problems are taken in turn, lines are in random order
#   --ckl PATH      build/ckl
#
# SECONDS_A_ROW (0.025) is the time of sampling a problem. CKL_TORCH_COMPILE=0 leaves torch.compile out, which takes seconds a
# problem; CKL_CUDNN_ENGINES (10, torch's own number) bounds torch's search of a convolution, 0 lets it try all. Afterwards
# scripts/update_performance.py makes the tables. A failed problem fails at the end, after the others.
set -euo pipefail
cd "$(dirname "$0")/.."

count=200 seed=1 seconds=3600 ahead=0 bytes=2^30 dtype='' results=bench/results/sample ckl=build/ckl
while [[ ${1:-} == --* ]]; do
    case $1 in
    --count | --seed | --seconds | --ahead | --bytes | --dtype | --results | --ckl) declare "${1#--}=${2:?bench_sample: $1 needs a value}" ;;
    *)
        echo "bench_sample: unknown option $1" >&2
        exit 2
        ;;
    esac
    shift 2
done
operators=("$@")
[[ $# -gt 0 ]] || mapfile -t operators < <("$ckl" sample --count 1 | cut -d' ' -f1)

lines=$(mktemp -d)
trap 'rm -r "$lines"' EXIT
suites=
for operator in "${operators[@]}"; do
    file=$lines/$operator${dtype:+-$dtype}.txt
    "$ckl" sample "$operator" --count "$count" --seed "$seed" --bytes "$bytes" ${dtype:+--dtype "$dtype"} >"$file"
    suites+=${suites:+,}$file
done

run_peers_ahead() { # in a process for each core but two; a row of each operator in turn
    local processes i
    processes=$(($(nproc) > 3 ? $(nproc) - 2 : 1))
    awk '/^(attention|attention_decode|conv) / { print FNR "\t" $0 }' "$lines"/*.txt | sort -n | cut -f2 >"$lines/ahead"
    for ((i = 0; i < processes; i++)); do
        awk -v i="$i" -v n="$processes" 'NR % n == i' "$lines/ahead" >"$lines/ahead-$i"
        OMP_NUM_THREADS=1 timeout -k 3 "$((ahead + 3))" "$ckl" bench --suite "$lines/ahead-$i" --peers-ahead --within "$ahead" >/dev/null 2>&1 &
    done
    wait
}

mkdir -p "$results"
export OMP_WAIT_POLICY=passive # threads that wait take no core from those that work
export CKL_CUDNN_ENGINES=${CKL_CUDNN_ENGINES:-10} CUDA_CACHE_MAXSIZE=${CUDA_CACHE_MAXSIZE:-4294967296}
if [[ $ahead -gt 0 ]]; then
    run_peers_ahead
    echo "peers ahead: $SECONDS s"
fi
"$ckl" bench --suite "$suites" --seconds "${SECONDS_A_ROW:-0.025}" --within "$seconds" --json "$results/"
