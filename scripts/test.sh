#!/usr/bin/env bash
# All tests and every docstring's example; arguments go on to pytest.
set -uo pipefail
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

use_venv .venv 12 test
# Graphs compile on one core each. Neighbours stay together, for the fixtures that they share.
cd "$root" && exec "$python" -m pytest -n auto --maxprocesses 4 --dist worksteal "$@"
