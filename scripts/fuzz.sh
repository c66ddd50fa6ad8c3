#!/usr/bin/env bash
# fuzz.sh [MINUTES] [NAME...] - libFuzzer over what takes text from outside, MINUTES each (10); needs clang.
#
# Each tests/fuzz/fuzz_NAME.c starts from the texts in tests/fuzz/corpus/NAME.txt, one a line, and keeps what it finds worth
# keeping in build-fuzz/corpus/NAME. A finding is a file build-fuzz/NAME-crash-*; the last line is "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.." || exit
minutes=${1:-10}
shift
build=build-fuzz
passed=0
failed=0

missing() {
    echo "fuzz: $1 is missing; on Debian: apt-get install clang libclang-rt-dev libomp-dev" >&2
    exit 3
}
command -v clang >/dev/null || missing clang
echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n && 0; }' |
    clang -x c - -fsanitize=fuzzer -fopenmp -o /dev/null 2>/dev/null || missing "clang's fuzzer or OpenMP runtime"

cmake -S . -B $build -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang -DCKL_SANITIZE=fuzzer >/dev/null &&
    cmake --build $build -j"$(nproc)" --target fuzzers || exit

names=("$@")
[[ ${#names[@]} -gt 0 ]] || mapfile -t names < <(basename -s .c tests/fuzz/fuzz_*.c | sed 's/^fuzz_//')
for name in "${names[@]}"; do
    mkdir -p "$build/corpus/$name"
    # One file a text, as libFuzzer wants them.
    awk -v folder="$build/corpus/$name" '{ file = folder "/line" NR; printf "%s", $0 > file; close(file) }' \
        "tests/fuzz/corpus/$name.txt"
    awk '{ gsub(/\\/, "\\\\"); gsub(/"/, "\\\""); print "\"" $0 "\"" }' "tests/fuzz/corpus/$name.words" >"$build/$name.dict"
    if "$build/fuzz_$name" -max_total_time=$((${minutes%.*} * 60)) -timeout=20 -rss_limit_mb=4096 -max_len=300 \
        -dict="$build/$name.dict" -artifact_prefix="$build/$name-" "$build/corpus/$name" >"$build/$name.log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        grep -aE '^(fuzz:|==.*ERROR|SUMMARY|artifact_prefix)|runtime error' "$build/$name.log" | tail -n 20
    fi
    echo "$name: $(grep -aE '^(Done|stat::number_of_executed_units)|^#[0-9]+' "$build/$name.log" | tail -1)"
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
