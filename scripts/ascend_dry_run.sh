#!/usr/bin/env bash
# Compiles every config, and a run through a data sink, for Ascend, and prints what came out as a table. Needs no
# device: with CANN (its set_env.sh sourced) it uses that, else gcc builds stand-ins. It shows compiling, not running.
# Arguments go on to pytest, such as -k resnet50.
set -uo pipefail
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

missing=""
for tool in gcc g++ nm readelf; do
    command -v "$tool" >/dev/null || missing="$missing $tool"
done
[ -z "$missing" ] || [ -n "${ASCEND_HOME_PATH:-}" ] ||
    fail "not found:$missing; install a compiler (Debian: apt install gcc g++ binutils), or source CANN's set_env.sh"

use_venv .venv 12 test
# Each dry run is a process of its own, which compiles on one core.
cd "$root" && exec "$python" -m pytest -m ascend_dry -n 2 --dist worksteal tests/ascend "$@"
