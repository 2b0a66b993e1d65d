"""In data parallel what is frozen is not reduced: the bytes are those of what trains.

python benchmarks/ranks.py            two processes on this machine, through msrun
python benchmarks/ranks.py --short    the same, on a small network
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from math import prod
from pathlib import Path

import mindspore as ms
from measure import counted, heading, is_short, table
from mindspore import communication, nn
from mindspore.train import anf_ir_pb2
from nets import IMAGE, LABELS, ResNet, momentum

import msgrad as mg

RANKS = 2
FROZEN = {"nothing": (), "layer1": ("conv1", "bn1", "layer1"), "all but layer4": ()}
FROZEN["all but layer4"] = (*FROZEN["layer1"], "layer2", "layer3")


def reduced(step: mg.TrainStep) -> list[int]:
    """Return the elements of each AllReduce in the graph of the present stage."""
    model = anf_ir_pb2.ModelProto()  # pyright: ignore  # made when imported, unseen by pyright
    model.ParseFromString(step.inner.get_func_graph_proto())
    nodes = [node for node in model.graph.node if node.op_type == "AllReduce"]
    return [prod(d.size for d in n.output_type.tensor_type.shape.dim) for n in nodes]


def rank(folder: Path, width: int) -> None:
    """Do one step in each stage; rank 0 writes what was reduced and what trains."""
    mg.use_device("CPU", distributed=True)
    ms.set_seed(1)
    net = ResNet([1, 1, 1, 1], width=width)
    step = mg.TrainStep(net, momentum, nn.CrossEntropyLoss(), unreached="allow").set_train()
    found = {}
    for name, patterns in FROZEN.items():
        mg.unfreeze(net)
        if patterns:
            mg.freeze(net, *patterns)
        step(IMAGE, LABELS)
        trained = [p.nbytes for p in step.optimizer.parameters]
        counts = reduced(step)
        found[name] = [len(trained), sum(trained), len(counts), 4 * sum(counts)]
    if communication.get_rank() == 0:
        (folder / "found.json").write_text(json.dumps(found))


def launch(folder: Path, width: int) -> dict[str, list[int]]:
    """Start both ranks, and return what rank 0 wrote."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # msrun starts the `python` of PATH
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    msrun = "import sys; from mindspore.parallel.cluster.run import main; sys.exit(main())"
    ranks = [f"--worker_num={RANKS}", f"--local_worker_num={RANKS}", f"--master_port={port}"]
    logs = [f"--log_dir={folder / 'logs'}", "--join=True"]
    command = [sys.executable, "-c", msrun, *ranks, *logs, __file__, "--rank", str(width)]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return json.loads((folder / "found.json").read_text())


def main(*, short: bool) -> None:
    """Print the table."""
    heading(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        found = launch(Path(folder), 2 if short else 32)
    for name, (weights, size, reductions, moved) in found.items():
        counted((reductions, moved), (weights, size), name=f"reduced, {name} frozen")
    rows = [[name, *numbers] for name, numbers in found.items()]
    table(["frozen", "weights trained", "their bytes", "AllReduce", "bytes reduced"], rows)


if __name__ == "__main__":
    if "--rank" in sys.argv:
        rank(Path.cwd(), int(sys.argv[-1]))
    else:
        main(short=is_short(__doc__))
