#!/usr/bin/env bash
# Trains as a config says, on several cards of one server or of several, or in several CPU processes.
set -uo pipefail

usage() {
    cat <<'EOT'
usage: bash scripts/run_distribute_train.sh CONFIG WORKERS [DATA_DIR] [--cards LIST]
                                            [--resume FOLDER] [--log_dir FOLDER] [--port PORT]
                                            [--servers N --server I --master ADDRESS]
                                            [KEY=VALUE ...]

  CONFIG        a YAML file, see configs/
  WORKERS       processes on this server, one for each card
  DATA_DIR      folder of the data, where the config needs one
  --cards       which cards of this server, as 4,5,6,7; the first WORKERS by default
  --resume      the ckpt_save_dir of a run to go on with; all servers must see it
  --log_dir     folder for the logs of msrun, one a worker; msrun_log by default
  --port        port of msrun's scheduler, 8118 by default
  --servers     number of servers; start this script on each, with WORKERS of each
  --server      number of this server, from 0
  --master      address of server 0
  KEY=VALUE     keys of the config to change: epoch_size=3 optimizer.learning_rate=0.01

environment: PYTHON (the interpreter; else that of the active environment, else one made here),
             ASCEND_BASE (where CANN stands, if not in /usr/local/Ascend or ~/Ascend),
             HCCL_CONNECT_TIMEOUT (seconds that cards wait for each other to connect, 1200),
             HCCL_EXEC_TIMEOUT (seconds that they wait for each other in a step, 1836),
             CLUSTER_TIME_OUT (seconds to wait until all workers have come, 600)
EOT
}

# shellcheck source=scripts/_launch.sh
. "$(dirname "${BASH_SOURCE[0]}")/_launch.sh"

# Checks that --servers, --server and --master stand together.
read_servers() {
    local name given=0
    for name in servers server master; do
        [ -z "${option[$name]+set}" ] || given=$((given + 1))
    done
    servers=${option[servers]:-1} server=${option[server]:-0} master=${option[master]:-127.0.0.1}
    [ "$given" -eq 0 ] || [ "$given" -eq 3 ] ||
        misused "--servers, --server and --master go together"
    check_number --servers "$servers" 1 99999
    check_number --server "$server" 0 "$((10#$servers - 1))"
    [ -n "$master" ] || misused "--master is empty"
}

# Lets this process and its children see the chosen cards only; MindSpore counts them from 0.
choose_cards() {
    local cards=${option[cards]} chosen
    [[ $cards =~ ^[0-9]+(,[0-9]+)*$ ]] || misused "--cards '$cards' is no list as 4,5,6,7"
    IFS=, read -ra chosen <<<"$cards"
    [ "${#chosen[@]}" -eq "$((10#$workers))" ] ||
        misused "--cards names ${#chosen[@]} cards for $workers workers"
    [ -z "$(printf '%s\n' "${chosen[@]}" | sort | uniq -d)" ] ||
        misused "--cards '$cards' names a card twice"
    export ASCEND_RT_VISIBLE_DEVICES=$cards
}

# Where msrun listens; it would wait for minutes if another run does already.
check_port() {
    "$python" - "$port" <<'PY' || fail "port $port is taken by another program; give another --port"
import socket
import sys

with socket.socket() as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("127.0.0.1", int(sys.argv[1])))
    except OSError:
        sys.exit(1)
PY
}

# msrun starts the `python` of PATH, so that the one that was chosen has to be it.
put_python_first() {
    local programs="$log_dir/bin"
    mkdir -p "$programs" 2>/dev/null || fail "cannot write to log_dir '$log_dir'; mend its rights"
    printf '#!/usr/bin/env bash\nexec %q "$@"\n' "$python" >"$programs/python"
    chmod +x "$programs/python"
    PATH="$programs:$(dirname "$python"):$PATH"
    export PATH
    command -v msrun >/dev/null ||
        fail "msrun is not beside $python; install MindSpore there: $python -m pip install mindspore"
}

read_arguments cards resume log_dir port servers server master
[ "${#words[@]}" -ge 1 ] || misused "WORKERS is missing"
[ "${#words[@]}" -le 2 ] ||
    misused "CONFIG, WORKERS and DATA_DIR are all, '${words[2]}' is one too many"
workers=${words[0]} port=${option[port]:-8118}
check_number WORKERS "$workers" 1 1024
check_number --port "$port" 1024 65535
read_servers
[ -z "${option[cards]+set}" ] || choose_cards
check_paths "${words[@]:1:1}"
log_dir=$(absolute "${option[log_dir]:-msrun_log}")
[ ! -e "$log_dir" ] || [ -d "$log_dir" ] || fail "log_dir '$log_dir' is no folder; give another one"
use_python
use_cann
[ "$server" -ne 0 ] || check_port
put_python_first
export HCCL_CONNECT_TIMEOUT="${HCCL_CONNECT_TIMEOUT:-1200}"
export HCCL_EXEC_TIMEOUT="${HCCL_EXEC_TIMEOUT:-1836}"
# each worker takes the card of its own number, so that a device_id of the config would be wrong
changes+=("distribute=true" "device_id=null")
command=(msrun "--worker_num=$((10#$workers * 10#$servers))" "--local_worker_num=$((10#$workers))")
command+=("--master_addr=$master" "--master_port=$port")
[ "$servers" -eq 1 ] || command+=("--node_rank=$((10#$server))")
command+=("--cluster_time_out=${CLUSTER_TIME_OUT:-600}" "--log_dir=$log_dir" "--join=True")
command+=(--tail_worker_log=0 "$root/scripts/train.py" --config "$config")
[ -z "${option[resume]+set}" ] || command+=(--resume "${option[resume]}")
command+=(--set "${changes[@]}")
export GLOG_v="${GLOG_v:-3}" # MindSpore warns at length while the workers find each other
say "$workers workers here, server $server of $servers, scheduler $master:$port, logs in $log_dir"
train_to_the_end "${command[@]}"
