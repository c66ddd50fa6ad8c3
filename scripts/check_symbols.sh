#!/usr/bin/env bash
# check_symbols.sh LIBRARY - every exported symbol starts with ckl_ or __tvm_ffi_ckl, the stripped library is small, and
# its SONAME changes when a struct may (base.h says when).
set -euo pipefail
cd "$(dirname "$0")/.."
library=${1:?usage: check_symbols.sh LIBRARY}
bytes_max=$(((3 * 1024 + 768) * 1024))
. scripts/checks.sh

is_ours() { [[ $1 == ckl_* || $1 == __tvm_ffi_ckl* ]]; }

while read -r symbol; do
    check "$library exports $symbol" is_ours "$symbol"
done < <(nm -D --defined-only "$library" | awk '{print $NF}' | sed 's/@.*//')
check "$library exports nothing" test "$passed" -gt 0

stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$library"
bytes=$(stat -c %s "$stripped")
check "$library has $bytes bytes stripped, more than $bytes_max" test "$bytes" -le "$bytes_max"

number() { # number NAME: of the version in base.h
    awk -v name="CKL_VERSION_$1" '$2 == name {print $3}' include/cutekernellib/base.h
}
interface=$(number MAJOR)
[[ $interface -gt 0 ]] || interface+=.$(number MINOR)
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
check "$library is $soname, wanted libcutekernellib.so.$interface" test "$soname" = "libcutekernellib.so.$interface"
report
