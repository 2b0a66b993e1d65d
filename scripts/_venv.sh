# Sourced by the commands: finds a Python, makes or reuses a virtual environment, installs into it.
#
#   use_venv FOLDER NEWEST EXTRA [REQUIREMENT...]
#
# leaves the environment's interpreter in $python. FOLDER stands in the project; NEWEST is the newest
# minor version of Python 3 that fits; EXTRA is one of setup.py. A second start installs nothing.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
oldest=10
needed_mb=4000 # MindSpore: the wheel, its unpacked files, what pip holds meanwhile

say() { printf 'msgrad: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Prints what is wrong with an interpreter, nothing if it fits: pyenv's shims exist and do not run.
python_fault() {
    "$1" - "$oldest" "$2" <<'PY' 2>/dev/null || echo "does not run"
import sys

found = sys.version_info[:2]
if not (3, int(sys.argv[1])) <= found <= (3, int(sys.argv[2])):
    print("is Python %d.%d" % found)
else:
    try:
        import ensurepip, venv
    except ImportError:
        print("lacks venv (Debian: apt install python3-venv)")
PY
}

# Prints the first interpreter that fits.
find_python() {
    local newest=$1 minor name candidate fault seen=""
    local names=()
    for ((minor = newest; minor >= oldest; minor--)); do names+=("python3.$minor"); done
    while IFS= read -r candidate; do
        [ -n "$candidate" ] || continue
        fault=$(python_fault "$candidate" "$newest")
        if [ -z "$fault" ]; then
            printf '%s\n' "$candidate"
            return
        fi
        seen="$seen; $candidate $fault"
    done < <(
        [ -z "${PYTHON:-}" ] || { command -v "$PYTHON" || echo "$PYTHON"; }
        for name in "${names[@]}" python3 python; do type -aP "$name"; done
    )
    fail "no Python 3.$oldest to 3.$newest found${seen:+ (${seen#; })};" \
        "install one, or name it: PYTHON=/path/to/python3.11"
}

# An environment of ours that runs, stands where it was made, and was not left half-installed.
venv_works() {
    local venv=$1 newest=$2
    [ ! -e "$venv/installing" ] &&
        [ -z "$(python_fault "$venv/bin/python" "$newest")" ] &&
        "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.prefix != sys.argv[1])' "$venv" 2>/dev/null
}

make_venv() {
    local venv=$1 newest=$2 base free output
    base=$(find_python "$newest") || exit 1
    free=$(df -Pk "$root" 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')
    [ "${free:-$needed_mb}" -ge "$needed_mb" ] ||
        fail "the disk is full: $free MB free at $root, MindSpore needs $needed_mb; free space"
    [ ! -e "$venv" ] || say "remaking $venv, which does not run, was moved or is half-installed"
    rm -rf "$venv" 2>/dev/null
    say "making $venv with $("$base" -V 2>&1) ($base)"
    output=$("$base" -m venv "$venv" 2>&1) ||
        fail "cannot make $venv: $(printf '%s' "$output" | tail -n 1); free space, or mend the rights of $root"
}

# Everything that decides what has to be installed.
requirement_set() {
    cat "$root/setup.py" && printf '%s\n' "$root" "$@"
}

# The extra `test` holds all that others hold.
installed() {
    local venv=$1 extra=$2 stamp=$3
    { [ "$(cat "$venv/installed.$extra" 2>/dev/null)" = "$stamp" ] ||
        [ "$(cat "$venv/installed.test" 2>/dev/null)" = "$stamp" ]; } &&
        "$venv/bin/python" - <<'PY' 2>/dev/null
from importlib.util import find_spec
import sys

sys.exit(not all(map(find_spec, ("mindspore", "numpy", "msgrad"))))
PY
}

pip_is_at() {
    grep -oE '^ *(Collecting [^ ]*|Downloading [^ ]*|Building .*|Installing collected packages)' "$1" |
        tail -n 1 | sed 's/^ *//'
}

# Runs pip with its pages in a log, and says every 15 seconds what it is at.
run_pip() {
    local log=$1 pid seconds=0
    shift
    PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 "$python" -m pip install --progress-bar off \
        --retries 2 "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    trap 'kill "$pid" 2>/dev/null; fail "stopped while installing; start again to go on"' INT TERM
    while kill -0 "$pid" 2>/dev/null; do
        sleep 1
        seconds=$((seconds + 1))
        ((seconds % 15)) || say "  $seconds s: $(pip_is_at "$log")"
    done
    trap - INT TERM
    wait "$pid"
}

install_fault() {
    local log=$1
    if grep -qi 'no space left' "$log"; then
        echo "the disk is full; free $needed_mb MB"
    elif grep -qiE 'NewConnectionError|Temporary failure in name|Failed to establish|ConnectTimeout|ReadTimeout|ProxyError|Network is unreachable' "$log"; then
        echo "the package index cannot be reached; connect to a network, or set pip's index"
    elif grep -qi 'permission denied' "$log"; then
        echo "permission denied; mend the rights of $root"
    else
        grep -E '^ *(ERROR|error)' "$log" | head -n 1 | cut -c 1-160
    fi
}

install() {
    local venv=$1 extra=$2 stamp=$3 log="$1/install.log"
    shift 3
    say "installing MindSpore and the rest, 1 to 3 minutes the first time (log: $log)"
    : 2>/dev/null >"$venv/installing" || fail "cannot write to $venv; mend the rights of $root"
    run_pip "$log" -e "${root}[$extra]" "$@" ||
        fail "installing failed: $(install_fault "$log") (log: $log)"
    printf '%s' "$stamp" >"$venv/installed.$extra"
    rm -f "$venv/installing"
    say "installed in $SECONDS s"
}

# Two starts at once would install into one folder together.
lock() {
    command -v flock >/dev/null || return 0
    exec 9>"$1"
    flock -n 9 || { say "waiting for another start that is installing" && flock 9; }
}

use_venv() {
    local venv="$root/$1" newest=$2 extra=$3 stamp
    shift 3
    [ -w "$root" ] || fail "cannot write to $root; mend its rights, or copy the project"
    python="$venv/bin/python"
    lock "$venv.lock"
    venv_works "$venv" "$newest" || make_venv "$venv" "$newest"
    stamp=$(requirement_set "$@" | cksum)
    installed "$venv" "$extra" "$stamp" || install "$venv" "$extra" "$stamp" "$@"
    exec 9>&-
}

# Runs pytest in place of this shell. Graphs compile on one core each; one process more than there are cores works while
# others wait for programs that they started. Neighbours stay together, for the fixtures that they share.
run_tests() {
    local workers
    workers=$(($("$python" -c 'import os; print(len(os.sched_getaffinity(0)))') + 1))
    cd "$root" && exec "$python" -m pytest -n "$((workers < 4 ? workers : 4))" --dist worksteal "$@"
}
