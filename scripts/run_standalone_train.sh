#!/usr/bin/env bash
# Trains as a config says, on one card or on the CPU.
set -uo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/run_standalone_train.sh CONFIG [DATA_DIR] [--card N] [--resume FOLDER]
                                            [KEY=VALUE ...]

  CONFIG        a YAML file, see configs/
  DATA_DIR      folder of the data, where the config needs one
  --card        number of the Ascend card; MindSpore's first one by default
  --resume      the ckpt_save_dir of a run to go on with
  KEY=VALUE     keys of the config to change: epoch_size=3 optimizer.learning_rate=0.01

environment: PYTHON (the interpreter; else that of the active environment, else one made here),
             ASCEND_BASE (where CANN stands, if not in /usr/local/Ascend or ~/Ascend)
EOT
}

# shellcheck source=scripts/_launch.sh
. "$(dirname "${BASH_SOURCE[0]}")/_launch.sh"

read_arguments card resume
[ "${#words[@]}" -le 1 ] || misused "CONFIG and DATA_DIR are all, '${words[1]}' is one too many"
if [ -n "${option[card]+set}" ]; then
    check_number --card "${option[card]}" 0 1023
    changes+=("device_id=${option[card]}")
fi
check_paths "${words[@]:0:1}"
use_python
use_cann
command=("$python" "$root/scripts/train.py" --config "$config")
[ -z "${option[resume]+set}" ] || command+=(--resume "${option[resume]}")
[ "${#changes[@]}" -eq 0 ] || command+=(--set "${changes[@]}")
export GLOG_v="${GLOG_v:-3}" # MindSpore warns at length where there is no Ascend
train_to_the_end "${command[@]}"
