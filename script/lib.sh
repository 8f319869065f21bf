# shellcheck shell=bash
# What the scripts of this folder share: messages, root, packages, Python and the virtual environment.
# Sourced, never run.
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$repository/.venv
program=$(basename "$0")

say() { printf '%s: %s\n' "$program" "$*" >&2; }

# Ends the script: exit code 2 for a wrong command line, 3 for something missing or broken.
usage_error() { say "$1"; say "try: script/$program --help"; exit 2; }
die() { say "$1"; shift; for line in "$@"; do say "  $line"; done; exit 3; }

# Prints the comment block at the top of the script.
print_help() { sed -n '2,/^[^#]/{s/^# \{0,1\}//;/^[^#]*$/p}' "$0" | sed '/^set -/,$d'; }

# Prints how many seconds a deadline of so many has: tests multiply all theirs on a slow machine (tests/deadlines.py).
scaled() { awk -v seconds="$1" -v factor="${WEIGHBRIDGE_DEADLINE_FACTOR:-1}" 'BEGIN { printf "%.0f", seconds * factor }'; }

interactive() { [ -t 0 ] && [ -t 2 ]; }

# Asks, unless `assume_yes` is set or no terminal is there (then the answer is yes).
confirm() {
    if [ -n "${assume_yes:-}" ] || ! interactive; then return 0; fi
    local answer
    read -r -p "$program: $1 [Y/n] " answer
    case $answer in '' | [Yy]*) return 0 ;; *) return 1 ;; esac
}

is_root() { [ "$(id -u)" -eq 0 ]; }

# Says whether as_root works without a password prompt that no terminal could answer.
can_be_root() {
    is_root || { command -v sudo >/dev/null && { interactive || sudo -n true 2>/dev/null; }; }
}

as_root() {
    if is_root; then
        "$@"
    elif interactive; then
        sudo -- "$@"
    else
        sudo -n -- "$@"
    fi
}

has_package() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Installs the packages that are missing; returns 1 with a reason when that cannot be done.
apt_install() {
    local missing=() package
    for package in "$@"; do has_package "$package" || missing+=("$package"); done
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null; then
        say "${missing[*]} missing, and this system has no apt-get: install them with its own package manager"
        return 1
    fi
    if ! can_be_root; then
        say "${missing[*]} missing, and installing takes root or sudo: sudo apt-get install ${missing[*]}"
        return 1
    fi
    say "installing ${missing[*]}"
    local apt=(apt-get -qq -o DPkg::Lock::Timeout=180 -o Acquire::Retries=3)
    local install=(env DEBIAN_FRONTEND=noninteractive "${apt[@]}" --no-install-recommends)
    install+=(install -y "${missing[@]}")
    local log
    log=$(mktemp)
    # The package lists of a fresh machine are empty or old: fetch them when they turn out not to do.
    if as_root "${install[@]}" >"$log" 2>&1 ||
        { as_root "${apt[@]}" update >>"$log" 2>&1 && as_root "${install[@]}" >>"$log" 2>&1; }; then
        rm -f "$log"
        return 0
    fi
    say "${missing[*]} cannot be installed; the end of apt-get's output:"
    tail -n 8 "$log" >&2
    rm -f "$log"
    return 1
}

python_fits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Prints the first Python that is new enough; returns 1 when there is none.
find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && python_fits "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

require_python() {
    python=$(find_python) && return 0
    apt_install python3 python3-venv || true
    python=$(find_python) || die "Python 3.11 or newer is needed; found: $(python3 --version 2>/dev/null || echo none)" \
        "install one, for example: apt-get install python3.11 python3.11-venv" \
        "or name one: PYTHON=/path/to/python3.12 script/$program"
}

# ensure_venv run|docs|all|test|test-all: a virtual environment that holds Weighbridge as it is in this folder.
# The stamp is written last, so that an interrupted installation is done again.
ensure_venv() {
    local mode=$1 stamp=$venv/.weighbridge wanted
    require_python
    wanted=$(fingerprint "$mode")
    # What the tests or the documents need has all that a run needs, and all tests need everything.
    local enough=("$wanted" "$(fingerprint test-all)") made
    [ "$mode" = run ] && enough+=("$(fingerprint docs)" "$(fingerprint all)" "$(fingerprint test)")
    for made in "${enough[@]}"; do
        if [ "$(cat "$stamp" 2>/dev/null)" = "$made" ]; then return 0; fi
    done
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv" ||
            die "$python cannot make virtual environments"
    fi
    if ! { [ -x "$venv/bin/python" ] && python_fits "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
        say "making the virtual environment $venv with $("$python" --version)"
        "$python" -m venv --clear "$venv" || die "$python cannot make a virtual environment"
    fi
    # setuptools would pack what an earlier build left, files that are gone by now included.
    rm -rf "$stamp" "$repository/build/lib"
    local what=(.)
    [ "$mode" = run ] || what=(-e ".[$mode]")
    say "installing Weighbridge and what it needs (pip install ${what[*]})"
    (cd "$repository" && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 5 "${what[@]}" </dev/null) ||
        die "pip could not install Weighbridge; its message is above"
    printf '%s\n' "$wanted" >"$stamp"
}

# What a virtual environment was made from: of an editable installation only the metadata counts.
fingerprint() {
    local files=(pyproject.toml setup.py)
    [ "$1" = run ] && files+=(bench_common bench_features bench_master bench_worker dockerfiles scenarios weighbridge workloads)
    (
        cd "$repository" || exit
        printf '%s %s ' "$1" "$python"
        find "${files[@]}" -type f ! -path '*/__pycache__/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum
    )
}

# Builds a Go program into a file, once, of several that start at once by one of them:
# go_build FILE PACKAGE VERSION CGO LINKER_FLAGS TAKES
go_build() {
    local file=$1 package=$2 version=$3 cgo=$4 flags=$5 takes=$6 name work began=$SECONDS
    name=$(basename "$file")
    if [ -x "$file" ]; then return 0; fi
    command -v go >/dev/null || die "building $name takes Go 1.24 or newer, and there is no go here"
    mkdir -p "$(dirname "$file")"
    exec 9>"$(dirname "$file")/lock"
    flock -w 1200 9 || die "another build of $name has not finished within 20 minutes"
    if [ -x "$file" ]; then exec 9>&-; return 0; fi
    say "building $name $version from its Go module: about $takes of CPU time, once"
    work=$(mktemp -d)
    # shellcheck disable=SC2064  # Go's cache is of no use afterwards
    trap "chmod -R u+w '$work'; rm -rf '$work'" EXIT
    GOBIN=$work/bin GOCACHE=$work/cache CGO_ENABLED=$cgo \
        nice go install -trimpath -ldflags "-s -w $flags" "$package@$version" \
        2> >(grep -v '^go: downloading' >&2) || die "$name $version cannot be built; go's message is above"
    mv "$work/bin/$(basename "$package")" "$file"
    exec 9>&-
    say "built in $((SECONDS - began)) s: $file"
}
