#!/usr/bin/env bash
# Thousands of random sequences of calls against a model in NumPy; arguments go on: --count 2000 --first 0.
set -uo pipefail
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

use_venv .venv 12 test
folder=$(mktemp -d) && cd "$folder" || exit 1
PYTHONPATH="$root" "$python" -W ignore -m tests.sequences.play "$@"
code=$?
rm -rf "$folder"
exit "$code"
