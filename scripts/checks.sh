# checks.sh - for scripts of checks, which source it: they are counted, and the last line says how many.
passed=0
failed=0

check() { # check WHAT COMMAND...: the command succeeds
    local what=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        echo "FAILED $what"
        failed=$((failed + 1))
    fi
}

report() { # at the end: fails where a check did, or where there was none
    echo "$passed passed, $failed failed"
    [[ $failed -eq 0 && $passed -gt 0 ]]
}
