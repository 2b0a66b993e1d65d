#!/usr/bin/env bash
# Runs every benchmark and prints its table; --short only counts. About an hour on two quiet cores.
set -uo pipefail
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

use_venv .venv 12 test
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
# MindSpore writes folders into where it runs.
cd "$folder" || exit 1
for file in "$root"/benchmarks/*.py; do
    case ${file##*/} in measure.py | nets.py) continue ;; esac
    say "${file##*/}"
    PYTHONPATH="$root" "$python" "$file" "$@" || failed=1
done
exit "$failed"
