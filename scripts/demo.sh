#!/usr/bin/env bash
# The main job: trains on handwritten digits four times and shows how far conv1 moved each time.
# Needs nothing but a Python 3.10 to 3.12; all else goes into .venv at the first start.
set -uo pipefail
# shellcheck source=scripts/_venv.sh
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

export GLOG_v="${GLOG_v:-3}" # MindSpore warns at length where there is no Ascend
use_venv .venv 12 tools
cd "$root" || exit 1
runs=(digits_baseline digits_stop_by_hand digits_stop_conv1 digits_freeze_conv1)
for run in "${runs[@]}"; do
    "$python" scripts/train.py --config "configs/$run.yaml" --show conv1 --overwrite || exit 1
done
"$python" scripts/compare.py "${runs[@]}" || exit 1
cat <<'EOT'
digits_stop_by_hand: ops.stop_gradient in construct, and an optimizer over all parameters, as MindSpore's own
train cell has it; no gradient reaches conv1, and weight decay moves it all the same. The last two are msgrad's.
Pictures, figures, weights and the resolved config of each run: runs/<run>/
EOT
