#!/usr/bin/env bash
# Builds the site of docs/ into site/ and fails at a warning; `serve` shows it at http://127.0.0.1:8000 while you write.
set -uo pipefail
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

export NO_MKDOCS_2_WARNING=1 # an advertisement of the theme
use_venv .venv 12 docs
cd "$root" || exit 1
case "${1:-build}" in
build) exec "$python" -m mkdocs build --strict ;;
serve) exec "$python" -m mkdocs serve ;;
*) fail "unknown command '$1'; give build or serve" ;;
esac
