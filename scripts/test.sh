#!/usr/bin/env bash
# All tests and every docstring's example; arguments go on to pytest.
set -uo pipefail
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

use_venv .venv 12 test
run_tests "$@"
