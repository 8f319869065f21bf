# shellcheck shell=bash
# How script/test runs the tests: all of them in lanes, or those that somebody names as they were named.
# Sourced, never run. `slow`, if not empty, stands for the slow tests as well.

# Whether these arguments are for all tests, whichever way they run.
are_for_all() {
    local word
    for word in "$@"; do
        case $word in
            -v | -vv | -q | -qq | -x | -r?* | --durations=* | --maxfail=* | --tb=* | --timeout=* | --color=*) ;;
            *) return 1 ;;
        esac
    done
}

# Many tests wait most of their time: one more at a time than there are processors, and no more than four.
count_lanes() {
    local processors
    processors=$(nproc)
    echo $((processors < 4 ? processors + 1 : 4))
}

# In two parts: files beside each other, and then what is marked `alone`, one after the other. A file stays together,
# since its tests share what is dear to make, and the files in which much is waited for come first.
run_all() {
    local which='not slow' lanes status=0
    if [ -n "${slow:-}" ]; then which='(slow or not slow)'; fi
    lanes=$(count_lanes)
    say "the tests that may run beside others, $lanes at a time"
    pytest -m "$which and not alone" --numprocesses "$lanes" --dist loadfile --no-loadscope-reorder "$@" || status=$?
    # Where tests have failed (1), the others are of interest all the same, unless somebody says otherwise.
    if [ "$status" -gt 1 ]; then return "$status"; fi
    if [ "$status" -eq 1 ]; then case " $*" in *' -x'* | *' --maxfail='*) return 1 ;; esac; fi
    say "the tests that want the machine to themselves"
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
