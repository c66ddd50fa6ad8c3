#!/usr/bin/env bash
# check_symbols.sh LIBRARY - every exported symbol starts with ckl_ or __tvm_ffi_ckl, the stripped library is small, and
# its SONAME changes when a struct may (base.h says when).
set -euo pipefail
cd "$(dirname "$0")/.."
library=${1:?usage: check_symbols.sh LIBRARY}
bytes_max=$(((3 * 1024 + 768) * 1024))
passed=0
failed=0

while read -r symbol; do
    if [[ $symbol == ckl_* || $symbol == __tvm_ffi_ckl* ]]; then
        passed=$((passed + 1))
    else
        echo "FAILED $library exports $symbol"
        failed=$((failed + 1))
    fi
done < <(nm -D --defined-only "$library" | awk '{print $NF}' | sed 's/@.*//')

stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$library"
bytes=$(stat -c %s "$stripped")
if [[ $bytes -le $bytes_max ]]; then
    passed=$((passed + 1))
else
    echo "FAILED $library has $bytes bytes stripped, more than $bytes_max"
    failed=$((failed + 1))
fi

number() { # number NAME: of the version in base.h
    awk -v name="CKL_VERSION_$1" '$2 == name {print $3}' include/cutekernellib/base.h
}
interface=$(number MAJOR)
[[ $interface -gt 0 ]] || interface+=.$(number MINOR)
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
if [[ $soname == "libcutekernellib.so.$interface" ]]; then
    passed=$((passed + 1))
else
    echo "FAILED $library is $soname, wanted libcutekernellib.so.$interface"
    failed=$((failed + 1))
fi
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 1 ]]
