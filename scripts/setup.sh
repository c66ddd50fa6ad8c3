#!/usr/bin/env bash
# setup.sh - installs the system packages that building and testing need, or prints the command that does.
# Usage: scripts/setup.sh [deb|docs|python]    With deb, also what a Debian package needs; with docs, what the API reference needs;
# with python, what the tests in C++ and Python need: a compiler, and a virtual environment in build-venv, where they can be had and
# PyPI be reached. Quick when nothing is missing.
set -euo pipefail

missing=()

need() { # need PACKAGE TEST...: the package is missing if the test fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

header() { # a C header is on the include path
    echo "#include <$1>" | cc -E -
}

root=() # before a command that installs
[[ $(id -u) -eq 0 ]] || root=(sudo -n --preserve-env=DEBIAN_FRONTEND)

can_install() {
    command -v apt-get && "${root[@]}" true
} >/dev/null 2>&1

need gcc command -v cc
need make command -v make
need cmake command -v cmake
need pkg-config command -v pkg-config
need libc6-dev header stdio.h
need libjansson-dev pkg-config --exists jansson
need libcmocka-dev pkg-config --exists cmocka
if [[ ${1:-} == deb ]]; then
    need dpkg-dev command -v dpkg-shlibdeps
    need file command -v file
fi
[[ ${1:-} != docs ]] || need doxygen command -v doxygen

python_environment() {
    [[ ! -x build-venv/bin/python ]] || build-venv/bin/python -c 'import numpy, tvm_ffi' 2>/dev/null || rm -rf build-venv
    [[ ! -x build-venv/bin/python ]] || return 0
    { python3 -m venv build-venv && build-venv/bin/pip -q install 'apache-tvm-ffi>=0.1.6,!=0.1.8,!=0.1.8.post0,<0.2' numpy; } \
        >/dev/null 2>&1 || {
        rm -rf build-venv
        echo "The Python tests will be skipped: no virtual environment with numpy and apache-tvm-ffi could be made." >&2
    }
}

make_environment=true
if [[ ${1:-} == python ]]; then
    make_environment=python_environment
    ! can_install || need python3-venv python3 -c 'import ensurepip'
    ! can_install || need g++ command -v c++
fi
[[ ${#missing[@]} -gt 0 ]] || { $make_environment; exit; }
need ninja-build command -v ninja # not needed, but builds are faster with it

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if ! command -v apt-get >/dev/null; then
    echo "Missing: ${missing[*]} (Debian names). Install them with this system's package manager." >&2
    exit 1
fi
if ! can_install; then
    echo "Missing: ${missing[*]}. Install them with:" >&2
    echo "    sudo ${install[*]}" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
echo "Installing ${missing[*]}"
"${root[@]}" "${install[@]}" >/dev/null 2>&1 || {
    "${root[@]}" apt-get update -qq
    "${root[@]}" "${install[@]}"
}
$make_environment
