#!/usr/bin/env bash
# test.sh [--full] BUILD - the checks that need no GPU; the last line is "N passed, N failed".
#
# The quick ones take some minutes: every case and every unit test runs once, unit tests with sanitizers unless they are long.
# --full adds the other runs of large problems, five seeds, the kernels of forced configs, long tests of accuracy, each unit test
# with and without sanitizers, and threads under ThreadSanitizer.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
full=
extent=(--accepted tests/data/accepted.txt) # ptxas is asked about code that it has not seen before
if [[ ${1:-} == --full ]]; then
    full=--full
    extent=(--full)
    export CKL_TEST_FULL=1 # unit tests look at it
    shift
fi
build=${1:-build}
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
export CKL_TUNED=off           # what this user has tuned is not what is tested
export OMP_WAIT_POLICY=passive # spinning threads starve each other where cores are few or busy
export MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296 # glibc keeps what the next problem will ask for again
TIMEFORMAT='%U + %S'           # the cost of each group, however busy the machine is
passed=0
failed=0

# run NAME COMMAND...: shows what it says and adds the counts of its last "N passed, N failed". A command that says no
# counts is one check; one that fails without a count of failures adds one failure.
run() {
    local name=$1 begin=$SECONDS status p=0 f=0
    shift
    echo "== $name"
    (time "$@" >"$log" 2>&1) 2>"$log.cpu" # alone in a shell: time counts whatever children have ended
    status=$?
    if [[ $(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$log" | tail -1) =~ ^([0-9]+)\ passed,\ ([0-9]+) ]]; then
        p=${BASH_REMATCH[1]} f=${BASH_REMATCH[2]}
    elif [[ $status -eq 0 ]]; then
        p=1
    fi
    [[ $status -ne 0 && $f -eq 0 ]] && f=1
    passed=$((passed + p)) failed=$((failed + f))
    if [[ $f -ne 0 ]]; then
        tail -n 200 "$log"
    else
        grep -E '^(skipped|[0-9]+ declined|[0-9]+ left)' "$log"
    fi
    echo "   $p passed, $f failed, $((SECONDS - begin)) s, $(<"$log.cpu") s of a core"
}

unit() { # cmocka counts tests in its own words
    "$1" >"$log.unit" 2>&1
    local status=$? good bad
    cat "$log.unit"
    good=$(grep -c '\[       OK \]' "$log.unit")
    bad=$(grep '^\[  FAILED  \] test' "$log.unit" | sort -u | wc -l) # cmocka names each twice
    rm -f "$log.unit"
    [[ $status -ne 0 && $bad -eq 0 ]] && bad=1
    echo "$good passed, $bad failed"
    [[ $bad -eq 0 ]]
}

units() { # units BUILD NAME...
    local folder=$1 name
    shift
    for name in "$@"; do
        run "$name ($folder)" unit "$folder/$name"
    done
}

verify() { # verify CKL OPTIONS...: ckl verify by a process a core, since most problems are too small for several threads
    local ckl=$1 part=$log.$BASHPID cores i status=0 processes=()
    shift
    cores=$(nproc)
    [[ $cores -le 16 ]] || cores=16
    for ((i = 1; i <= cores; i++)); do
        OMP_NUM_THREADS=1 "$ckl" verify --shard "$i/$cores" "$@" >"$part.$i" 2>&1 &
        processes+=($!)
    done
    for ((i = 1; i <= cores; i++)); do
        wait "${processes[i - 1]}" || status=1
        cat "$part.$i"
    done
    cat "$part".* | awk '/^[0-9]+ passed, [0-9]+ failed$/ {p += $1; f += $3} END {print p + 0 " passed, " f + 0 " failed"}'
    rm "$part".*
    return $status
}

help_texts() { # every command explains itself, and knows what it does not know
    local command operator text names name
    "$build/ckl" --help || return 1
    "$build/ckl" --version || return 1
    while read -r command; do
        [[ $("$build/ckl" help "$command") == *"usage: ckl"* ]] || return 1 # no pipe, which grep would close early
        grep -q "^| .ckl ${command}[ \`]" README.md || { echo "README.md has no ckl $command"; return 1; }
    done < <("$build/ckl" --help | awk '/^  [a-z]/ {print $1}')
    while read -r operator; do
        text=$("$build/ckl" help "$operator") || return 1
        names=$("$build/ckl" run "$operator" impl=none --device emulator:h200 2>&1 | sed -n 's/.*There are://p')
        [[ $names ]] || return 1
        for name in $names; do
            grep -qE "^  $name +[^ ]" <<<"$text" || return 1
        done
    done < <(sed -n 's/^    X(\([a-z]*\)).*/\1/p' src/operators/operators.h)
    [[ $("$build/ckl" help gemm) == *" layout="*"tile_m="* ]] || return 1
    [[ $("$build/ckl" help gmem 2>&1) == *"did you mean 'gemm'"* ]] || return 1
    [[ $("$build/ckl" verfiy 2>&1) == *"did you mean 'verify'"* ]] || return 1
    [[ $("$build/ckl" gemm m=1 2>&1) == *"try 'ckl run gemm'"* ]] || return 1
    [[ $("$build/ckl" run gmem m=1 2>&1) == *"did you mean 'gemm'"* ]] || return 1
    [[ $("$build/ckl" layout '(4,8' 2>&1 || echo $?) == "ckl: position 5:"*$'\n2' ]]
}

documented_lines() { # problem lines of docs/operators.md, which says that they run as they are
    local operators
    operators=$("$build/ckl" --help | sed -n 's/^Operators: //p')
    awk -v operators="$operators" '/^```/ {code = !code; next} code && index(" " operators " ", " " $1 " ")' docs/operators.md >"$log.lines"
    [[ $(wc -l <"$log.lines") -gt 40 ]] && ! "$build/ckl" explain --suite "$log.lines" --device emulator:h200 --costs | grep ^none
}

predictions() { # beside what was measured
    command -v python3 >/dev/null || { echo "skipped: what compares predicted costs with measured times wants python3"; return; }
    scripts/judge_costs.py "$build/ckl" --most 1.7
}

script_examples() {
    command -v python3 >/dev/null || { echo "skipped: the examples in scripts want python3, which is missing"; return; }
    python3 -m doctest scripts/update_performance.py
}

listed_mutants() { # an entry of tests/mutants.txt whose line is gone excuses nothing any more
    local place before status=0
    while read -r place && read -r before && read -r && read -r; do
        grep -qxF -- "${before#- }" <(sed 's/^ *//' "${place%% *}") || { echo "${place%% *} has no line '${before#- }'"; status=1; }
        read -r
    done < <(grep -v '^#' tests/mutants.txt | sed '/./,$!d')
    return $status
}

ended_lists() { # cases behind the NULL that ends a list never run
    ! grep -rPzo --include='*.c' '\n    NULL,\n(?!};)[^\n]*' src | tr '\0' '\n' | grep .
}

columns() { # of comments: clang-format leaves them alone
    ! grep -rnE --include='*.[ch]' '^.{121,}$' bench cli examples include lab src tests | grep -E ':( *\*|.*//|.*/\*)'
}

new_operators() { # a copy of each kind compiles, and misses nothing that is its own
    local folder kind file status=0
    folder=$(mktemp -d)
    mkdir "$folder/bench"
    cp -r .clang-format include src scripts "$folder" && cp -r bench/suites "$folder/bench" || return 1
    for kind in map row; do
        "$folder/scripts/new-operator" "fresh$kind" --like "$kind" || status=1
    done
    echo '#include "cutekernellib/cutekernellib.h"' >"$folder/src/operators/freshmap/all.c" # names of different copies differ
    for file in "$folder"/src/operators/fresh*/*.c; do
        "${CC:-cc}" -std=gnu17 -fopenmp-simd -Wall -Wextra -Werror -I"$folder/include" -I"$folder/src" -c "$file" -o "${file%.c}.o" || status=1
    done
    ld -r -o "$folder/fresh.o" "$folder"/src/operators/fresh*/*.o && ! nm -u "$folder/fresh.o" | grep fresh || status=1
    rm -r "$folder"
    return $status
}

python_package() { # its tests on the emulated GPU, with the library that was built
    if [[ ! -x build-venv/bin/python ]]; then
        echo "skipped: the tests of the Python package want build-venv, which scripts/setup.sh python makes"
        return
    fi
    CKL_LIBRARY=$(realpath "$build")/libcutekernellib.so PYTHONPATH=python build-venv/bin/python tests/python/run.py
}

wheel() { # as a new user has it: built, installed into an empty environment, tested from elsewhere
    local folder status
    [[ -x build-venv/bin/python ]] || { echo "skipped: the wheel wants build-venv, which scripts/setup.sh python makes"; return; }
    folder=$(mktemp -d)
    scripts/wheel.sh build-venv/bin/python && python3 -m venv "$folder" && "$folder/bin/pip" -q install dist/*.whl numpy &&
        (cd / && env -u PYTHONPATH -u CKL_LIBRARY "$folder/bin/python" "$OLDPWD/tests/python/run.py")
    status=$?
    rm -r "$folder"
    return $status
}

debian_package() { # as CPack makes it: ckl runs, and what belongs to an installed library is inside
    local folder name status
    { command -v dpkg-shlibdeps && command -v file; } >/dev/null || { echo "skipped: the Debian package wants dpkg-shlibdeps and file"; return; }
    folder=$(mktemp -d)
    (cd "$build" && cpack -G DEB -B "$folder") && dpkg-deb -x "$folder"/*.deb "$folder/root" && "$folder/root/usr/bin/ckl" --version &&
        [[ $(dpkg-deb -f "$folder"/*.deb Depends) == *libc6* ]]
    status=$?
    for name in cutekernellib.h libcutekernellib.so libcutekernellib.a cutekernellib.pc cutekernellib-config.cmake ckl.1 _ckl ckl.fish; do
        [[ $(find "$folder/root/usr" -name "$name") ]] || { echo "the Debian package has no $name"; status=1; }
    done
    rm -r "$folder"
    return $status
}

crash_is_said() { # by ckl, which has handlers from its start; unit_crash looks at what they say of kernels
    local answer
    coproc LABORATORY { exec "$build/ckl" layout - 2>"$log.crash"; }
    printf '4:1\n%.0s' {1..2000} >&"${LABORATORY[1]}" # more answers than a buffer holds: the first one comes out
    read -rt 60 answer <&"${LABORATORY[0]}"
    kill -SEGV "$LABORATORY_PID"
    wait "$LABORATORY_PID"
    [[ $? -eq 139 && $answer && $(head -n 1 "$log.crash") == 'ckl: crashed, segmentation fault' ]]
} 2>/dev/null

sampled() { # lines of a sample are a suite, on standard input too; each comes once
    [[ $("$build/ckl" sample softmax --count 300 | sort -u | wc -l) -eq 300 ]] || return 1
    "$build/ckl" sample add reduce --count 1 | "$build/ckl" explain --suite - --device emulator:h200 >/dev/null || return 1
    [[ $("$build/ckl" sample add reduce --count 2 | "$build/ckl" explain --choice --suite - --device emulator:h200 |
        grep -cE '^(vector|rows|columns) ') -eq 4 ]] || return 1
    [[ $("$build/ckl" sample gemm layout=tn softmax --dtype f32 --count 3 | grep -cE '^(gemm .* a=f32.* layout=tn|softmax )') -eq 6 &&
        $("$build/ckl" sample gemm conv --dtype tf32 --count 3 | grep -cE '^(gemm .* a|conv dtype)=f32 math=tf32') -eq 6 ]] || return 1
    "$build/ckl" sample gemm a=f32 --dtype f16 && return 1 # one type is asked for
    "$build/ckl" sample add gemm rope --count 1 --bytes 2^14 | "$build/ckl" verify --suite - --device emulator:h200
}

sampled_in_time() { # one process measures the problems of all operators and knows when to stop; a failure is one at the end
    local folder status
    folder=$(mktemp -d)
    cat >"$folder/ckl" <<'END'
#!/bin/bash
[[ $1 == sample ]] && echo "$2 n=$4${10:+ dtype=${10}}" && exit
echo "$*" >"${@: -1}said"
files=${3//,/ }
cat $files >"${@: -1}lines"
exit 1
END
    chmod +x "$folder/ckl"
    scripts/bench_sample.sh --ckl "$folder/ckl" --count 7 --seconds 2 --results "$folder/new" add rope
    [[ $? -eq 1 && $(<"$folder/new/lines") == $'add n=7\nrope n=7' ]] &&
        [[ $(<"$folder/new/said") == "bench --suite "*"/add.txt,"*"/rope.txt --seconds 0.025 --within 2 --json $folder/new/" ]]
    status=$?
    scripts/bench_sample.sh --ckl "$folder/ckl" --count 7 --dtype f16 --results "$folder/typed" add
    [[ $(<"$folder/typed/lines") == "add n=7 dtype=f16" && $(<"$folder/typed/said") == "bench --suite "*"/add-f16.txt "* ]] || status=1
    rm -r "$folder"
    return $status
}

measured_whole() { # suites first, then samples; results of samples in a folder of their own; who did not end in time has failed
    local folder status
    folder=$(mktemp -d)
    cat >"$folder/ckl" <<'END'
#!/bin/bash
case $1 in
sample) [[ $2 == --count ]] && printf 'add n=1\nrope n=1\n' || echo "$2 n=$3" ;;
verify) [[ $2 == rope ]] && sleep 3 || echo '5 passed, 0 failed' ;;
bench) echo "$*" >"${@: -1}said" && echo made >"${@: -1}sample-add.json" ;;
esac
END
    chmod +x "$folder/ckl"
    scripts/bench_final.sh --ckl "$folder/ckl" --verify 1 --seconds 60 --results "$folder/new" >"$folder/output"
    [[ $? -eq 1 && $(<"$folder/new/said") == "bench --suite bench/suites/add.txt,"*",,"*"/sample-add.txt,"*"/sample-rope.txt "*"/new/" ]] &&
        [[ $(<"$folder/output") == "5 passed, 0 failed, 1 of 2 processes did not end"*"failed: verify" ]] && grep -q made "$folder/new/sample/add.json"
    status=$?
    rm -r "$folder"
    return $status
}

# The sanitizers' build: unit tests and small problems through the whole stack. The tests of kernels' accuracy and bits, of plans
# and of choices are long and show them little host code that the small problems do not; ptxas is not ours.
sanitized() {
    local names=("${unit_names[@]}")
    [[ $full ]] || names=("${short_names[@]}")
    run "address and undefined-behaviour sanitizer build" build_sanitized "${names[@]}"
    [[ -x build-sanitize/ckl ]] || return
    units build-sanitize "${names[@]}"
    echo "$((${#unit_names[@]} - ${#names[@]})) left to --full: sanitized programs of unit tests"
    run "ckl verify, sanitized" verify build-sanitize/ckl --suite bench/suites/smoke.txt --device emulator:h200
}

# Threads on one device, its caches and its plans, under ThreadSanitizer.
threads() {
    run "thread sanitizer build" build_threads
    [[ -x build-thread/ckl ]] || return
    units build-thread unit_threads unit_warm unit_cubin_cache
    run "ckl soak, thread sanitizer" build-thread/ckl soak --device emulator:h200 --minutes 0.5 --problems 4
}

build_threads() {
    cmake -S . -B build-thread -DCMAKE_BUILD_TYPE=Release -DCKL_SANITIZE=thread &&
        cmake --build build-thread -j"$(nproc)" --target ckl unit_threads unit_warm unit_cubin_cache
}

clang_build() { # its warnings are errors, too
    command -v clang >/dev/null || { echo "skipped: the build by clang wants clang"; return; }
    CC=clang cmake -S . -B build-clang -DCMAKE_BUILD_TYPE=Release && cmake --build build-clang -j"$(nproc)" --target all tests unit_gpu
}

build_units() {
    cmake --build "$build" -j"$(nproc)" --target "$@"
}

build_sanitized() {
    cmake -S . -B build-sanitize -DCMAKE_BUILD_TYPE=Debug -DCKL_SANITIZE=ON &&
        cmake --build build-sanitize -j"$(nproc)" --target ckl "$@"
}

mapfile -t unit_names < <(basename -s .c tests/unit_*.c)
grep -q '^CMOCKA_FOUND:INTERNAL=1$' "$build/CMakeCache.txt" || unit_names=()
long='answers|attention|attention_decode|choice|choices|configs|conv_epilogue|emulator_gemm|fuzz|in_place|invariant|layout|layout_laws|misaligned|naive|norm|order|plans|population|ptx|rules|softmax'
plain='bench|plan_cache' # leave something out under the sanitizers: times, a Python in the process
mapfile -t short_names < <(printf '%s\n' "${unit_names[@]}" | grep -vE "^unit_($long)$")
mapfile -t plain_names < <(printf '%s\n' "${unit_names[@]}" | grep -E "^unit_($long|$plain)$")
[[ $full ]] && plain_names=("${unit_names[@]}")

# The sanitizers' half runs beside the other one, which seldom keeps two cores busy; its report comes last.
(
    log=$log.sanitized
    sanitized
    echo "$passed $failed" >"$log"
) >"$log.report" &
sanitizers=$!

if [[ ${#unit_names[@]} -gt 0 ]]; then
    run "build of unit tests" build_units "${plain_names[@]}"
    units "$build" "${plain_names[@]}"
    echo "$((${#unit_names[@]} - ${#plain_names[@]})) left to --full: programs of unit tests that run with sanitizers"
else
    run "unit tests were not built: cmocka is missing" false
fi
run "include directions" scripts/check_includes.sh
run "exported symbols and size" scripts/check_symbols.sh "$build/libcutekernellib.so"
run "public headers" scripts/check_headers.sh
run "quotes and links of the documents" scripts/check_docs.sh
run "lines of tests/mutants.txt" listed_mutants
run "columns of comments" columns
run "ends of lists" ended_lists
run "examples in scripts" script_examples
run "help texts" help_texts
run "problem lines of the documents" documented_lines
run "new operators" new_operators
run "Python package" python_package
run "examples, installed" tests/examples.sh "$build"
run "a crash is said" crash_is_said
run "predicted costs" predictions
run "a sample, verified" sampled
run "a sample, in time" sampled_in_time
run "cases, suites and samples, in time" measured_whole
run "pure CuTe" scripts/verify_cute_implementation.sh "$build/ckl"
run "ckl soak, emulated H200" "$build/ckl" soak --device emulator:h200 --minutes 0.06
run "ckl verify, emulated H200" verify "$build/ckl" "${extent[@]}" --device emulator:h200 --assemble
for order in resident=1 schedule=random; do
    run "ckl verify, $order" env CKL_EMULATOR="$order" "$build/ckl" verify --suite tests/data/waiting.txt --device emulator:h200
done
run "ckl verify, emulated B200" "$build/ckl" verify --suite bench/suites/smoke-kinds.txt --shard "$([[ $full ]] && echo 1/1 || echo 1/3)" --device emulator:b200
run "ckl verify, emulated L4" "$build/ckl" verify --suite bench/suites/smoke.txt --device emulator:l4
for part in a100:1 l4:12; do # cases and rejects where kernels lack TMA, clusters, wgmma or shared memory
    run "ckl verify, a part of the cases on emulator:${part%:*}" "$build/ckl" verify --shard "$([[ $full ]] && echo 1/1 || echo "${part#*:}/16")" --device "emulator:${part%:*}"
done
[[ $full ]] && threads
[[ $full ]] && run "ckl verify, every case, one resident CTA" env CKL_EMULATOR="resident=1" "$build/ckl" verify --device emulator:h200
[[ $full ]] && run "build by clang" clang_build
[[ $full ]] && run "wheel, installed" wheel
[[ $full ]] && run "Debian package" debian_package
run "ckl fuzz, schedules of the emulator" "$build/ckl" fuzz --count $([[ $full ]] && echo 40000 || echo 1000) --seed 1
wait $sanitizers
cat "$log.report"
read -r p f <"$log.sanitized" || p=0 f=1
passed=$((passed + p)) failed=$((failed + f))

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
