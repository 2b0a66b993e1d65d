#!/usr/bin/env bash
# The same tests with the oldest MindSpore that is supported, in an environment of its own.
set -uo pipefail
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

use_venv .venv-oldest 11 test mindspore==2.7.0 # its newest wheel is for Python 3.11
run_tests "$@"
