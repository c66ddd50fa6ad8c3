#!/usr/bin/env bash
# examples.sh BUILD - installs the build into a folder of its own, builds the examples against that as users do, and runs them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=$(realpath "${1:?usage: examples.sh BUILD}")
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
passed=0
failed=0

check() { # check NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$prefix/log" 2>&1; then
        passed=$((passed + 1))
    else
        echo "FAILED $name"
        tail -n 20 "$prefix/log"
        failed=$((failed + 1))
    fi
}

compiled() { # compiled COMPILER SOURCE WORDS...: by pkg-config, with warnings; then run
    "$1" -Wall -Wextra -Werror -O1 "examples/$2" -o "$prefix/example" "${@:3}" && "$prefix/example"
}

by_rustc() {
    rustc -O -D warnings examples/one_call.rs -o "$prefix/example" -L "$libraries" && "$prefix/example"
}

by_find_package() {
    cmake -S examples -B "$prefix/cmake" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$prefix/cmake" &&
        "$prefix/cmake/one_call" && "$prefix/cmake/plans" && "$prefix/cmake/graph" && "$prefix/cmake/norm"
}

graph_is_launched() { # on a driver without a GPU, whose kernels do nothing: the capture, the graph and its launches
    local said
    said=$(LD_LIBRARY_PATH=$build/fake:$libraries "$prefix/cmake/graph")
    echo "$said" && [[ $said == *"a graph of two plans was launched 3 times"* ]]
}

# What a shell offers behind the words of a command line, the last one begun; without its terminal, so zsh's compadd says what it is given.
offers_bash() {
    bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _ckl; echo "${COMPREPLY[@]}"' \
        "$prefix/share/bash-completion/completions/ckl" "$@"
}

offers_zsh() {
    zsh -fc 'fpath=($0); autoload -Uz _ckl; compadd() { print -- $* }; _files() { }; words=("$@"); CURRENT=$#; _ckl' \
        "$prefix/share/zsh/vendor-completions" "$@"
}

offers_fish() {
    fish --no-config -c "source $prefix/share/fish/vendor_completions.d/ckl.fish; complete -C '$*'"
}

completes() { # completes SHELL WANTED WORDS...
    local shell=$1 wanted=$2
    shift 2
    PATH=$prefix/bin:$PATH "offers_$shell" "$@" | tr ' \t' '\n' | grep -qx -- "$wanted"
}

man_page() { # names every command, and is one for man
    local command page=$prefix/share/man/man1/ckl.1
    while read -r command; do
        grep -q "^.SS $command\$" "$page" || return 1
    done < <("$build/ckl" --help | awk '/^  [a-z]/ {print $1}')
    { ! command -v groff || [[ -z $(groff -ww -man -Tascii "$page" 2>&1 >/dev/null) ]]; } &&
        { ! command -v mandoc || mandoc -T lint -W warning "$page"; }
}

exports_nothing_else() { # the static library: its names cannot meet those of a program; locks of OpenMP are to be shared
    [[ -z $(nm --defined-only -g "$prefix"/lib*/libcutekernellib.a "$prefix"/lib/*/libcutekernellib.a 2>/dev/null |
        awk 'NF == 3 && $3 !~ /^(ckl_|__tvm_ffi_ckl|\.gomp_critical_)/') ]]
}

export OMP_NUM_THREADS=2
check "install" cmake --install "$build" --prefix "$prefix"
pc=$(find "$prefix" -name cutekernellib.pc)
export PKG_CONFIG_PATH=${pc%/*}
read -ra flags < <(pkg-config --cflags --libs cutekernellib)
read -ra static < <(pkg-config --static --libs cutekernellib)
libraries=$(pkg-config --variable=libdir cutekernellib)
static=("${static[@]/-lcutekernellib/$libraries/libcutekernellib.a}")
export LD_LIBRARY_PATH=$libraries
check "one_call.c" compiled cc one_call.c "${flags[@]}"
check "layer.c" compiled cc layer.c "${flags[@]}"
check "plans.c" compiled cc plans.c "${flags[@]}" -pthread
check "epilogue.c" compiled cc epilogue.c "${flags[@]}"
check "graph.c" compiled cc graph.c "${flags[@]}" -ldl -lm
check "score.c" compiled cc score.c "${flags[@]}"
if command -v rustc >/dev/null; then
    check "one_call.rs" by_rustc
else
    echo "skipped: examples/one_call.rs wants rustc"
fi
check "one_call.c with the static library" compiled cc one_call.c "${flags[0]}" "${static[@]}"
if command -v c++ >/dev/null; then
    check "norm.cc" compiled c++ norm.cc -std=c++17 "${flags[@]}"
    check "find_package(cutekernellib)" by_find_package
else
    echo "skipped: examples/norm.cc and find_package(cutekernellib) want a C++ compiler"
fi
if [[ -e $build/fake/libcuda.so.1 && -x $prefix/cmake/graph ]]; then
    check "graph.c by a driver" graph_is_launched
else
    echo "skipped: graphs of examples/graph.c want find_package(cutekernellib) and the unit tests' driver without a GPU"
fi
check "names in the static library" exports_nothing_else
check "man page" man_page
for shell in bash zsh fish; do
    if command -v "$shell" >/dev/null; then
        check "commands by $shell" completes "$shell" explain ckl ex
        check "options by $shell" completes "$shell" --json ckl bench --
        check "operators by $shell" completes "$shell" rmsnorm ckl run rms
        check "keys by $shell" completes "$shell" rotary_dim= ckl run rope ro
        check "help by $shell" completes "$shell" help ckl he
        check "commands to help by $shell" completes "$shell" verify ckl help ve
    else
        echo "skipped: its completion wants $shell"
    fi
done
if [[ -x build-venv/bin/python ]]; then
    export CKL_LIBRARY=$build/libcutekernellib.so PYTHONPATH=python
    check "numpy_arrays.py" build-venv/bin/python examples/numpy_arrays.py
    if build-venv/bin/python -c 'import torch' 2>/dev/null; then
        check "torch_training.py" build-venv/bin/python examples/torch_training.py
    else
        echo "skipped: examples/torch_training.py wants torch"
    fi
else
    echo "skipped: examples in Python want build-venv, which scripts/setup.sh python makes"
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
