# shellcheck shell=bash
# How script/test runs the tests: all of them in lanes, or the named ones in one process.
# Sourced, never run. `slow`, if not empty, stands for the slow tests as well.

# Whether these arguments apply to all tests, so that they still run in lanes.
are_for_all() {
    local word
    for word in "$@"; do
        case $word in
            -v | -vv | -q | -qq | -x | -r?* | --durations=* | --maxfail=* | --tb=* | --timeout=* | --color=*) ;;
            *) return 1 ;;
        esac
    done
}

# Most tests wait for more than half of their time: three lanes more than there are processors, and no more than seven.
count_lanes() {
    local processors
    processors=$(nproc)
    echo $((processors < 4 ? processors + 3 : 7))
}

# In two parts: files in parallel, then the tests marked `alone`, one after the other. The tests of a file stay in one
# lane, since they share expensive fixtures. Chaos and integration tests come first, as they take longest.
run_all() {
    local which='not slow' lanes status=0
    if [ -n "${slow:-}" ]; then which='(slow or not slow)'; fi
    lanes=$(count_lanes)
    say "the tests that may run beside others, $lanes at a time"
    pytest -m "$which and not alone" --numprocesses "$lanes" --dist loadfile --no-loadscope-reorder "$@" || status=$?
    # After failed tests (1) the second part runs all the same, unless -x or --maxfail says otherwise.
    if [ "$status" -gt 1 ]; then return "$status"; fi
    if [ "$status" -eq 1 ]; then case " $*" in *' -x'* | *' --maxfail='*) return 1 ;; esac; fi
    say "the tests that need the machine to themselves"
    pytest -m "$which and alone" "$@" || status=$?
    return "$status"
}

# run_tests ARGUMENTS: returns pytest's exit code, and 0 only if all of its parts passed.
run_tests() {
    local status=0
    if are_for_all "$@"; then
        run_all "$@" || status=$?
        if [ "$status" -ne 0 ]; then say "NOT passed (exit code $status): see the summary of each part above"; fi
    elif [ -n "${slow:-}" ]; then
        pytest -m 'slow or not slow' "$@" || status=$?
    else
        pytest "$@" || status=$?
    fi
    return "$status"
}
