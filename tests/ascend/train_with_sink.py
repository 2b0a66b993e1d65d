"""A dry run: `Model.train` with a data sink through stages; writes what was compiled for each.

python train_with_sink.py UNIT SINK_SIZE    # stages counted in epochs or in steps
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import Tensor, nn

import msgrad as mg
from graphs import graph_files, read_graphs
from surroundings import GRAPHS, RESULT

BATCH, BATCHES, EPOCHS = 8, 8, 6
BODY, MIDDLE, HEAD = "0", "2", "4"
# The third goes back to what the first trained; the fourth freezes again what the second thawed.
STAGES = [(HEAD, 2), ([MIDDLE, HEAD], 1), (HEAD, 1), ([BODY, HEAD], 1), ("*", None)]


class Calls(ms.Callback):
    """Notes what stands at each call of the train network, which does a whole sink.

    At the first call of epoch `freeze_at` it freezes the head, as a user's own callback might.
    """

    def __init__(self, step: mg.TrainStep, schedule: mg.Schedule, freeze_at: int) -> None:
        super().__init__()
        self.step, self.schedule, self.freeze_at = step, schedule, freeze_at
        self.calls: list[dict[str, Any]] = []

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Freeze the head."""
        if run_context.original_args().cur_epoch_num == self.freeze_at:
            mg.freeze(self.step.network, HEAD)

    def on_train_step_end(self, run_context: Any) -> None:
        """Note the stage, the weights of its optimizer, and how many graphs there are."""
        params = run_context.original_args()
        self.calls.append(
            {
                "wrapped": params.train_network is not self.step,
                "trainable": self.step.trainable,
                "in_optimizer": [p.name for p in params.optimizer.parameters],
                "graphs": len(graph_files(Path(GRAPHS))),
                "steps": self.step.position.step,
            }
        )


def main(unit: str, sink_size: int) -> None:
    """Train; write the calls and, for each graph, its AllReduce and the weights that it writes."""
    mg.use_device("Ascend", distributed="auto")
    net = nn.SequentialCell(
        nn.Dense(16, 32), nn.ReLU(), nn.Dense(32, 32), nn.ReLU(), nn.Dense(32, 4)
    )
    images = np.ones((BATCH * BATCHES, 16), np.float32)
    labels = np.ones((BATCH * BATCHES, 4), np.float32)
    data = ds.NumpySlicesDataset((images, labels), ["image", "label"], shuffle=False).batch(BATCH)
    step = mg.TrainStep(net, lambda p: nn.AdamWeightDecay(p, 0.1), nn.MSELoss())
    step.prepare(Tensor(images[:BATCH]), Tensor(labels[:BATCH]))
    before = len(graph_files(Path(GRAPHS)))  # that of what a gradient reaches

    each = 1 if unit == "epochs" else sink_size if sink_size > 0 else BATCHES
    stages = [mg.Stage(train=p, **({unit: n * each} if n else {})) for p, n in STAGES]
    schedule = mg.Schedule(step, stages)
    calls = Calls(step, schedule, freeze_at=EPOCHS + 1)
    ms.Model(step).train(
        EPOCHS + 1, data, callbacks=[calls, schedule], dataset_sink_mode=True, sink_size=sink_size
    )

    names = {p.name for p in net.get_parameters()}
    graphs = [read_graphs([file]) for file in graph_files(Path(GRAPHS))[before:]]
    result = {
        "calls": [call | {"graphs": call["graphs"] - before} for call in calls.calls],
        "all_reduce": [graph.operators["AllReduce"] for graph in graphs],
        "written": [sorted(graph.written & names) for graph in graphs],
    }
    Path(RESULT).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
