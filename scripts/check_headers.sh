#!/usr/bin/env bash
# check_headers.sh - each public header compiles alone, as C11, C17 and C++17, by every compiler present, without a warning;
# a status that is not looked at gives one.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/checks.sh

compile() { # compile COMPILER LANGUAGE STANDARD SOURCE...: what the compiler says
    printf '%s\n' "${@:4}" | "$1" -x "$2" "-std=$3" -Wall -Wextra -pedantic -Werror -Iinclude -c -o /dev/null - 2>&1
}

warns() { # warns COMPILER LANGUAGE STANDARD: of a call whose status is dropped
    [[ $(compile "$@" '#include <cutekernellib/device.h>' 'void f(ckl_device **d) { ckl_device_open(0, d); }') =~ \
        unused-result|nodiscard ]]
}

for compiler in gcc clang; do
    command -v $compiler >/dev/null || {
        echo "skipped: $compiler is not installed"
        continue
    }
    for language in c:c11 c:c17 c++:c++17; do
        $compiler -x "${language%:*}" -fsyntax-only /dev/null 2>/dev/null || {
            echo "skipped: $compiler does not compile $language"
            continue
        }
        while read -r header; do
            check "$compiler $language $header" compile $compiler ${language/:/ } "#include <$header>"
        done < <(cd include && find . -name '*.h' | sed 's|^\./||' | sort)
        check "$compiler $language: a dropped status" warns $compiler ${language/:/ }
    done
done
report
