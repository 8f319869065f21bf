# shellcheck shell=bash
# How script/test runs the tests: all of them or those of features in lanes, or the named ones in one process.
# Sourced, never run. `slow`, if not empty, stands for the slow tests as well, `record` for recording durations.

# choose_tests WORD...: sets `files` to the test files of the features among the words (none: no feature is named),
# `options` to the other words, and `engines` where a test may need one. Returns 2 for a word that means nothing.
# shellcheck disable=SC2034 # `engines` is for script/test, which names `python` here
choose_tests() {
    local chosen='' kind value
    files=() options=() engines=
    if [ $# -gt 0 ]; then chosen=$("${python:?}" tests/features.py "$@") || return 2; fi
    while read -r kind value; do
        case $kind in
            engines) engines=1 ;;
            file) files+=("$value") ;;
            option) options+=("$value") ;;
        esac
    done <<<"$chosen"
    if [ ${#files[@]} -eq 0 ]; then options=("$@") engines=1; fi
}

# Whether these options apply to all tests, so that they still run in lanes.
are_for_all() {
    local word
    for word in "$@"; do
        case $word in
            -v | -vv | -q | -qq | -x | -r?* | --durations=* | --maxfail=* | --tb=* | --timeout=* | --color=*) ;;
            *) return 1 ;;
        esac
    done
}

# count_lanes KIND FILE...: most tests wait for more than half of their time, so there are three lanes more than
# processors, and no more than seven. Unit tests do not wait, and each lane takes seconds to collect them.
count_lanes() {
    local lanes
    lanes=$(nproc)
    if [ "$1" != unit ]; then lanes=$((lanes < 4 ? lanes + 3 : 7)); fi
    shift
    # A lane runs whole files; a folder has enough of them.
    if [ -f "$1" ] && [ $# -lt "$lanes" ]; then lanes=$#; fi
    echo "$lanes"
}

# run_part NAME MARKS ARGUMENT...: runs a part of the tests, and adds its outcome to those of the parts before it.
# Returns 1 if no other part may follow. A part may be without a test (5): those of its files may all be slow.
run_part() {
    local name=$1 marks=$2 code=0
    shift 2
    say "$name"
    pytest -m "$marks" "$@" || code=$?
    if [ "$code" -eq 5 ]; then code=0; else found=1; fi
    if [ "$code" -gt "$status" ]; then status=$code; fi
    # After failed tests (1) the next part runs all the same, unless -x or --maxfail says otherwise.
    if [ "$code" -gt 1 ]; then return 1; fi
    if [ "$code" -eq 1 ]; then case " $* " in *' -x '* | *' --maxfail='*) return 1 ;; esac; fi
}

# In three parts: unit tests, the other files in lanes, and the tests marked `alone`, one after the other. The tests of
# a file stay in one lane, since they share expensive fixtures; tests/durations.py puts the longest first.
run_parts() {
    local which='not slow' file status=0 found='' lanes
    local unit=() beside=() alone=() in_lanes=(--dist loadfile --no-loadscope-reorder)
    if [ -n "${slow:-}" ]; then which='(slow or not slow)'; fi
    if [ -n "${record:-}" ]; then in_lanes+=(--record); fi
    if [ ${#files[@]} -gt 0 ]; then
        for file in "${files[@]}"; do
            case $file in tests/unit/* | tests/*/unit/*) unit+=("$file") ;; *) beside+=("$file") ;; esac
        done
    else
        # Each feature has folders of the same names.
        local folder
        for folder in tests/unit tests/*/unit; do [ ! -d "$folder" ] || unit+=("$folder"); done
        for folder in tests/{browser,chaos,integration} tests/*/{browser,chaos,integration}; do
            [ ! -d "$folder" ] || beside+=("$folder")
        done
    fi
    if [ ${#beside[@]} -gt 0 ]; then
        # Collecting the other files as well would take seconds.
        mapfile -t alone < <(grep --recursive --files-with-matches --include='test_*.py' 'mark\.alone' "${beside[@]}" | sort)
    fi
    if [ ${#unit[@]} -gt 0 ]; then
        lanes=$(count_lanes unit "${unit[@]}")
        run_part "the unit tests, $lanes files at a time" "$which" \
            --numprocesses "$lanes" "${in_lanes[@]}" "$@" "${unit[@]}" || return "$status"
    fi
    if [ ${#beside[@]} -gt 0 ]; then
        lanes=$(count_lanes others "${beside[@]}")
        run_part "the tests that may run beside others, $lanes files at a time" "$which and not alone" \
            --numprocesses "$lanes" "${in_lanes[@]}" "$@" "${beside[@]}" || return "$status"
    fi
    if [ ${#alone[@]} -gt 0 ]; then
        run_part "the tests that need the machine to themselves" "$which and alone" "$@" "${alone[@]}" ||
            return "$status"
    fi
    if [ -z "$found" ]; then return 5; fi
    return "$status"
}

# Runs what choose_tests chose. Returns pytest's exit code, and 0 only if all parts passed.
run_tests() {
    local status=0
    if are_for_all "${options[@]}"; then
        run_parts "${options[@]}" || status=$?
        if [ "$status" -ne 0 ]; then say "NOT passed (exit code $status): see the summary of each part above"; fi
    elif [ -n "${slow:-}" ]; then
        pytest -m 'slow or not slow' "${options[@]}" "${files[@]}" || status=$?
    else
        pytest "${options[@]}" "${files[@]}" || status=$?
    fi
    return "$status"
}
