#!/usr/bin/env bash
# bench_final.sh [options] - what a release is measured by, on one GPU and within a time: every case of every operator, every suite,
# and a sample of every operator that nobody has seen. What matters most comes first, so that the end of the time costs least.
#
#   --seconds T     in all (560)
#   --verify T      of them at most, for the cases (120); 0 leaves them out
#   --compile N     the first N problems of a row operator's sample race with torch.compile, too, in its default mode (0): processes beside
#                   the cases compile them into torch's cache on disk; a problem that was not compiled in time races without it
#   --count N       problems of an operator's sample (200)
#   --seed S        of the samples (1)
#   --bytes B       the largest problem of the samples (2^30)
#   --results DIR   bench/results: DIR/SUITE.json, DIR/sample/OPERATOR.json, DIR/verify/*.txt. Written every few seconds
#   --ckl PATH      build/ckl
#
# 1. `ckl verify`, a process for each operator, those with many cases in parts. 2. Suites and samples in one process: limits are
# measured once, torch is opened once. All suites first, their rows in turn, then the samples, theirs in turn. SECONDS_A_ROW (0.05) is the
# time of sampling a row. The last line is what failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

seconds=560 verify=120 compile=0 count=200 seed=1 bytes=2^30 results=bench/results ckl=build/ckl
while [[ ${1:-} == --* ]]; do
    case $1 in
    --seconds | --verify | --compile | --count | --seed | --bytes | --results | --ckl) declare "${1#--}=${2:?bench_final: $1 needs a value}" ;;
    *)
        echo "bench_final: unknown option $1" >&2
        exit 2
        ;;
    esac
    shift 2
done
COMPILERS=4
export OMP_WAIT_POLICY=passive # threads that wait take no core from those that work
export CKL_TORCH_COMPILE=0 TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/torchinductor}
[[ $compile -eq 0 ]] || CKL_TORCH_COMPILE=ahead
mkdir -p "$TORCHINDUCTOR_CACHE_DIR"
failed=
mapfile -t operators < <("$ckl" sample --count 1 | cut -d' ' -f1)
lines=$(mktemp -d)
trap 'rm -r "$lines"' EXIT

cases() { # the cases of an operator, or a part of them
    timeout "$verify" "$ckl" verify "$1" --device cuda --shard "$2" >"$results/verify/$1-${2/\//of}.txt" 2>&1
}

# The operators that torch.compile makes one kernel of.
compiled=(softmax crossentropy layernorm rmsnorm groupnorm add elementwise reduce transpose permute rope)

compile_ahead() { # in COMPILERS processes, to the end of the cases
    local operator i
    for operator in "${compiled[@]}"; do head -n "$compile" "$lines/sample-$operator.txt"; done >"$lines/compile.txt"
    for ((i = 0; i < COMPILERS; i++)); do
        awk -v i="$i" -v n="$COMPILERS" 'NR % n == i' "$lines/compile.txt" >"$lines/compile-$i.txt"
        CKL_TORCH_COMPILE=make TORCHINDUCTOR_COMPILE_THREADS=1 OMP_NUM_THREADS=1 "$ckl" bench --suite "$lines/compile-$i.txt" \
            --peers-ahead --peer torch --within "$verify" >"$results/verify/compile-$i.log" 2>&1 &
        compilers+=($!)
    done
}

verify_all() {
    local operator parts i compilers=() started=()
    rm -f "$results"/verify/*.txt
    [[ $compile -eq 0 ]] || compile_ahead
    export OMP_NUM_THREADS=2
    for operator in "${operators[@]}"; do
        parts=1
        [[ $operator == gemm || $operator == conv || $operator == attention ]] && parts=4
        for ((i = 1; i <= parts; i++)); do
            cases "$operator" "$i/$parts" &
            started+=($!)
        done
    done
    wait "${started[@]}"
    kill -KILL "${compilers[@]}" 2>/dev/null
    wait 2>/dev/null
    unset OMP_NUM_THREADS
    tail -qn 1 "$results"/verify/*.txt | awk -v all="${#started[@]}" '
        /^[0-9]+ passed, [0-9]+ failed/ { passed += $1; failed += $3; ended++ }
        END { print passed + 0 " passed, " failed + 0 " failed, " all - ended " of " all " processes did not end"
              exit failed > 0 || ended < all }'
}

mapfile -t suites < <(printf '%s\n' bench/suites/*.txt | grep -vE -- '-ladder.txt$|/smoke|/reduce-acceptance.txt$')
samples=
for operator in "${operators[@]}"; do
    "$ckl" sample "$operator" --count "$count" --seed "$seed" --bytes "$bytes" >"$lines/sample-$operator.txt"
    samples+=,$lines/sample-$operator.txt
done
mkdir -p "$results/sample" "$results/verify"
[[ $verify -eq 0 ]] || verify_all || failed=" verify"
echo "cases: ${SECONDS} s"
left=$((seconds - SECONDS - 5))
timeout -k 5 "$((left + 5))" "$ckl" bench --suite "$(IFS=, && echo "${suites[*]}"),$samples" --seconds "${SECONDS_A_ROW:-0.05}" --within "$left" --json "$results/" ||
    failed+=" bench"
for operator in "${operators[@]}"; do
    [[ ! -e $results/sample-$operator.json ]] || mv "$results/sample-$operator.json" "$results/sample/$operator.json"
done
echo "bench_final: $SECONDS s, failed:${failed:- nothing}"
[[ -z $failed ]]
