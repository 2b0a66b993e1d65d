#!/usr/bin/env bash
# Evaluates weights on the data held out, on one card or on the CPU.
set -uo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/run_eval.sh CONFIG [CKPT_PATH [DATA_DIR]] [--card N] [KEY=VALUE ...]

  CONFIG        a YAML file, see configs/
  CKPT_PATH     the weights; those that the run of the config left by default
  DATA_DIR      folder of the data, where the config needs one
  --card        number of the Ascend card; MindSpore's first one by default
  KEY=VALUE     keys of the config to change: batch_size=64

environment: PYTHON (the interpreter; else that of the active environment, else one made here),
             ASCEND_BASE (where CANN stands, if not in /usr/local/Ascend or ~/Ascend)
EOT
}

# shellcheck source=scripts/_launch.sh
. "$(dirname "${BASH_SOURCE[0]}")/_launch.sh"

read_arguments card
[ "${#words[@]}" -le 2 ] || misused "CONFIG, CKPT_PATH and DATA_DIR are all, '${words[2]}' is one too many"
if [ -n "${option[card]+set}" ]; then
    check_number --card "${option[card]}" 0 1023
    changes+=("device_id=${option[card]}")
fi
check_paths "${words[@]:1:1}"
[ "${#words[@]}" -eq 0 ] || check_file ckpt_path "${words[0]}"
use_python
use_cann
command=("$python" "$root/scripts/eval.py" --config "$config")
[ "${#words[@]}" -eq 0 ] || command+=(--ckpt_path "$(absolute "${words[0]}")")
[ "${#changes[@]}" -eq 0 ] || command+=(--set "${changes[@]}")
export GLOG_v="${GLOG_v:-3}" # MindSpore warns at length where there is no Ascend
exec "${command[@]}"
