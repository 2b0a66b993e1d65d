# Sourced by run_*.sh: reads their arguments, checks paths, finds Python and CANN; starts nothing.
#
#   read_arguments OPTION...   leaves $config, $changes, $words (further arguments), ${option[NAME]}
#   use_python                 leaves the interpreter in $python
#   use_cann                   sources an environment file of CANN, or says that the CPU is taken
#
# The script that sources it defines usage(). Exit code 2 is a wrong call, 1 anything else.
# shellcheck shell=bash
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

arguments=("$@")
declare -A option=()
words=()
changes=()

misused() {
    say "$*"
    usage >&2
    exit 2
}

read_arguments() {
    local known=" $* " argument name
    set -- "${arguments[@]+"${arguments[@]}"}"
    while (($#)); do
        argument=$1
        shift
        case $argument in
        -h | --help)
            usage
            exit 0
            ;;
        --*)
            name=${argument#--}
            [[ $known == *" $name "* ]] || misused "unknown option $argument"
            [ "$#" -gt 0 ] || misused "$argument needs a value"
            option[$name]=$1
            shift
            ;;
        [a-z_]*=*) changes+=("$argument") ;;
        *) words+=("$argument") ;;
        esac
    done
    [ "${#words[@]}" -gt 0 ] || misused "CONFIG is missing"
    config=${words[0]}
    words=("${words[@]:1}")
}

# A whole number in a range.
check_number() {
    local what=$1 value=$2 least=$3 most=$4
    if ! [[ $value =~ ^[0-9]{1,5}$ ]] || ((10#$value < least || 10#$value > most)); then
        misused "$what '$value' is no number from $least to $most"
    fi
}

check_file() {
    if [ ! -f "$2" ] || [ ! -r "$2" ]; then
        fail "$1 '$2' is no file that can be read; mend the path"
    fi
}

check_folder() {
    if [ ! -d "$2" ] || [ ! -r "$2" ]; then
        fail "$1 '$2' is no folder that can be read; mend the path"
    fi
}

# Prints a path as it holds from every folder.
absolute() {
    case $1 in
    /*) printf '%s\n' "$1" ;;
    *) printf '%s\n' "$PWD/$1" ;;
    esac
}

# Prints a change of a config key, with the value in the quotes of YAML.
change() { printf "%s='%s'\n" "$1" "${2//\'/\'\'}"; }

# The config, the folder of the data where one is given, and --resume.
check_paths() {
    local data=${1-}
    check_file config "$config"
    if [ -n "$data" ]; then
        check_folder data_dir "$data"
        changes+=("$(change data_dir "$(absolute "$data")")")
    fi
    if [ -n "${option[resume]+set}" ]; then
        check_folder resume "${option[resume]}"
    fi
}

# Says whether an interpreter has what the scripts import.
has_msgrad() {
    "$1" -c 'import sys
from importlib.util import find_spec
sys.path.insert(0, sys.argv[1])
sys.exit(not all(map(find_spec, ("mindspore", "msgrad", "yaml", "rich"))))' "$root" 2>/dev/null
}

# PYTHON as it is; else the Python of the environment that is active; else an environment of our own.
use_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        python=$(command -v "$PYTHON") || fail "PYTHON '$PYTHON' is no program; mend the path"
        has_msgrad "$python" ||
            fail "PYTHON '$PYTHON' lacks MindSpore, PyYAML or rich;" \
                "install them: $PYTHON -m pip install -e '${root}[tools]'"
    else
        python=""
        for candidate in python python3; do
            candidate=$(type -P "$candidate") && has_msgrad "$candidate" && python=$candidate && break
        done
        [ -n "$python" ] || use_venv .venv 12 tools
    fi
    python=$(absolute "$python")
    export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
}

cards_are_there() { compgen -G "${DEVICES:-/dev}/davinci[0-9]*" >/dev/null; }

# CANN before 8.5 stands in ascend-toolkit, later ones in cann; ASCEND_BASE names another place.
use_cann() {
    local base file found=""
    [ -z "${MS_SIMULATION_LEVEL:-}" ] || return 0
    if [ -z "${ASCEND_HOME_PATH:-}" ]; then
        for base in ${ASCEND_BASE:+"$ASCEND_BASE"} /usr/local/Ascend "$HOME/Ascend"; do
            for file in "$base/ascend-toolkit/set_env.sh" "$base/cann/set_env.sh"; do
                [ -z "$found" ] && [ -r "$file" ] && found=$file
            done
        done
        if [ -z "$found" ]; then
            say "no CANN: neither ascend-toolkit/set_env.sh nor cann/set_env.sh is in" \
                "${ASCEND_BASE:-/usr/local/Ascend} or $HOME/Ascend; device_target auto takes the CPU"
            return 0
        fi
        say "CANN: $found"
        # it reads variables that may be unset
        set +u
        # shellcheck source=/dev/null
        . "$found"
        set -u
    fi
    cards_are_there || say "CANN is there and no card (/dev/davinci*); device_target auto takes the CPU"
}

# Runs a training and ends as it does, or with a word and 130 where Ctrl-C stops it: msrun would end
# with 0 then, as if it had trained to the end, and MindSpore amid a step without a word.
train_to_the_end() {
    local stopped="" child code
    # In a process group of its own it gets each signal once, from here; without one the shell would
    # let it ignore Ctrl-C.
    set -m
    "$@" &
    child=$!
    trap 'stopped=1; kill -INT "$child" 2>/dev/null' INT
    trap 'kill -TERM "$child" 2>/dev/null' TERM HUP
    # the shell would write a line of its own for a child that a signal ended
    wait "$child" 2>/dev/null
    code=$?
    # a signal ends a wait early
    while kill -0 "$child" 2>/dev/null; do
        wait "$child" 2>/dev/null
        code=$?
    done
    [ -n "$stopped" ] || exit "$code"
    say "stopped; --resume goes on after the last epoch"
    exit 130
}
