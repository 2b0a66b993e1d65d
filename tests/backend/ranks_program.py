"""What each rank of test_ranks.py runs under msrun: python ranks_program.py PART FOLDER."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, nn
from mindspore.train import anf_ir_pb2

import msgrad as mg

RANKS, STEPS, CHANGE, SAVED = 2, 6, 3, 4


def make_net(seed: int = 1) -> nn.SequentialCell:
    values = np.random.default_rng(seed)
    net = nn.SequentialCell(
        nn.Dense(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dense(6, 5), nn.Tanh(), nn.Dense(5, 2)
    )
    for cell in (net[0], net[3], net[5]):
        for parameter in cell.get_parameters():
            parameter.set_data(Tensor(values.normal(0, 0.5, parameter.shape).astype(np.float32)))
    return net


def batch(step: int) -> tuple[np.ndarray, np.ndarray]:
    """The joined batch of a step; each rank takes its part of the rows."""
    values = np.random.default_rng(100 + step)
    return (
        values.normal(size=(8, 4)).astype(np.float32),
        values.normal(size=(8, 2)).astype(np.float32),
    )


def own_part(step: int) -> list[Tensor]:
    rank, rows = communication.get_rank(), 8 // RANKS
    return [Tensor(part[rank * rows : (rank + 1) * rows]) for part in batch(step)]


def momentum(parameters: list[ms.Parameter]) -> nn.Momentum:
    return nn.Momentum(parameters, 0.1, 0.9, weight_decay=0.01)


def make_step(
    net: nn.Cell, optimizer: Callable[[list[ms.Parameter]], nn.Cell] = momentum, **settings: Any
) -> mg.TrainStep:
    # every weight is reached; not to look for it saves a compile
    step = mg.TrainStep(net, optimizer, nn.MSELoss(), unreached="allow", **settings)
    step.set_train()
    return step


def reduced(step: mg.TrainStep) -> list[list[int]]:
    """The shapes that the compiled graph of the present stage reduces, from MindSpore's dump."""
    model = anf_ir_pb2.ModelProto()  # pyright: ignore  # made when imported, unseen by pyright
    model.ParseFromString(step.inner.get_func_graph_proto())
    nodes = [node for node in model.graph.node if node.op_type == "AllReduce"]
    return [[d.size for d in node.output_type.tensor_type.shape.dim] for node in nodes]


class Run:
    """Six steps: three with the first layer frozen, three without; saved after the fourth."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.net = make_net()
        mg.freeze(self.net, "1")
        self.frozen = mg.freeze(self.net, "0")
        self.step = make_step(self.net)
        self.reduced: list[list[list[int]]] = []

    def go(self, first: int, last: int, *, save: bool = False) -> None:
        for number in range(first, last):
            if number == CHANGE:
                self.frozen.undo()
            self.step(*own_part(number))
            if number in (first, CHANGE) and ms.get_context("mode") == ms.GRAPH_MODE:
                self.reduced.append(reduced(self.step))
            if save and number + 1 in (2, SAVED):
                self.step.save(self.folder / f"rank{communication.get_rank()}" / "run.ckpt")

    def write(self, name: str) -> None:
        values = {p.name: p.asnumpy() for p in self.step.get_parameters()}
        np.savez(self.folder / f"{name}.{communication.get_rank()}.npz", **values)
        report = {"reduced": self.reduced, "stages": self.step.stages}
        write(self.folder / f"{name}.{communication.get_rank()}.json", report)


def write(path: Path, content: object) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)


# --- the parts, one launch each


def whole(folder: Path) -> None:
    """Train without interruption, in both modes, then try all that is refused."""
    for name, mode in {"pynative": ms.PYNATIVE_MODE, "whole": ms.GRAPH_MODE}.items():
        ms.set_context(mode=mode)
        run = Run(folder)
        run.go(0, STEPS)
        run.write(name)
    told = {case.__name__: case(folder) for case in CASES}
    write(folder / f"cases.{communication.get_rank()}.json", told)


def killed(folder: Path) -> None:
    """Train past a save, then on and on until somebody kills the process."""
    run = Run(folder)
    run.go(0, SAVED + 1, save=True)
    write(folder / f"past_the_save.{communication.get_rank()}.json", None)
    for _ in range(100_000):
        run.step(*own_part(0))


def resumed(folder: Path) -> None:
    """Load what rank 0 saved, on all ranks, and train to the end."""
    run = Run(folder)
    position = run.step.load(folder / "rank0" / "run.ckpt")
    run.go(position.step, STEPS)
    run.write("resumed")


# --- what is refused: each returns what this rank was told, and what holds after it


def answer(attempt: Callable[[], object]) -> list[str]:
    try:
        attempt()
    except (mg.MsgradError, RuntimeError) as error:
        return [type(error).__name__, str(error)]
    return ["", ""]


def second() -> bool:
    return communication.get_rank() == 1


def masks(folder: Path) -> dict[str, Any]:
    """Rank 1 freezes one layer more; without it both train."""
    net = make_net()
    mg.freeze(net, "1")
    more = mg.freeze(net, "3") if second() else None
    before, step = mg.Snapshot(net), make_step(net)
    told = [answer(lambda: step(*own_part(0))) for _ in range(2)]
    untouched = before.moved()
    if more is not None:
        more.undo()
    step(*own_part(0))
    return {"told": told, "moved by it": untouched, "moved after": before.moved(),
            "stages": step.stages, "bits": mg.fingerprint(net)}  # fmt: skip


def masks_later(folder: Path) -> dict[str, Any]:
    """Rank 1 freezes another layer than rank 0, after a step together."""
    net = make_net()
    mg.freeze(net, "1")
    step = make_step(net)
    step(*own_part(0))
    mg.freeze(net, "3" if second() else "5")
    before = mg.Snapshot(net)
    return {"told": [answer(lambda: step(*own_part(1)))], "moved by it": before.moved()}


def stops(folder: Path) -> dict[str, Any]:
    net = make_net()
    if second():
        mg.stop_gradient(net, "3", at="input")
    step = make_step(net)
    return {"told": [answer(lambda: step(*own_part(0)))]}


def behaviour(folder: Path) -> dict[str, Any]:
    net = make_net()
    step = make_step(net)
    step.set_train(not second())
    return {"told": [answer(lambda: step(*own_part(0)))]}


def weights(folder: Path) -> dict[str, Any]:
    step = make_step(make_net(seed=1 + communication.get_rank()))
    return {"told": [answer(lambda: step(*own_part(0)))]}


def rates(folder: Path) -> dict[str, Any]:
    def make(parameters: list[ms.Parameter]) -> nn.Momentum:
        return nn.Momentum(parameters, 0.2 if second() else 0.1, 0.9)

    step = make_step(make_net(), make)
    return {"told": [answer(lambda: step(*own_part(0)))]}


def holds(folder: Path) -> dict[str, Any]:
    step = make_step(make_net(), lambda parameters: mg.HoldOptimizer(momentum(parameters)))
    if second():
        step.optimizer.hold("3.weight")
        step.optimizer.hold_rows("5.weight", [1])
    return {"told": [answer(lambda: step(*own_part(0)))]}


def holds_later(folder: Path) -> dict[str, Any]:
    step = make_step(make_net(), lambda parameters: mg.HoldOptimizer(momentum(parameters)))
    for number in range(10):
        step(*own_part(number))
        if number == 5 and second():
            step.optimizer.hold("3.weight")
    return {"told": [answer(lambda: step(*own_part(10)))]}


def factors(folder: Path) -> dict[str, Any]:
    net = make_net()
    mg.scale_gradient(net, "3", scale=0.5 + communication.get_rank())
    step = make_step(net)
    return {"told": [answer(lambda: step(*own_part(0)))]}


def nothing_left(folder: Path) -> dict[str, Any]:
    net = make_net()
    step = make_step(net)
    if second():
        mg.freeze(net, "*")
    return {"told": [answer(lambda: step(*own_part(0)))]}


def only_rank_0_saves(folder: Path) -> dict[str, Any]:
    """All call it, then rank 0 alone does; each load after it finds the newest."""
    step = make_step(make_net())
    own = folder / f"own{communication.get_rank()}.ckpt"
    step.save(own)
    step(*own_part(0))
    if not second():
        step.save(folder / "shared.ckpt")
    position = make_step(make_net()).load(folder / "shared.ckpt")
    return {"told": [], "written": own.exists(), "position": position.step}


def missing_file(folder: Path) -> dict[str, Any]:
    """Rank 1 has no such file: nobody loads."""
    net = make_net()
    step, before = make_step(net), mg.Snapshot(net)
    path = folder / ("none.ckpt" if second() else "shared.ckpt")
    told = answer(lambda: step.load(path))
    return {"told": [told], "moved by it": before.moved(), "position": step.position.step}


def other_file(folder: Path) -> dict[str, Any]:
    """Rank 1 loads the save of another step."""
    net = make_net()
    step, before = make_step(net), mg.Snapshot(net)
    path = folder / ("own0.ckpt" if second() else "shared.ckpt")
    told = answer(lambda: step.load(path))
    return {"told": [told], "moved by it": before.moved()}


class WithoutReducer(nn.TrainOneStepCell):
    """A train cell of a user's own who forgot the other ranks."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(network, optimizer)
        self.grad_reducer = nn.Identity()


@contextmanager
def warnings() -> Iterator[list[str]]:
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("msgrad").addHandler(handler)
    yield told
    logging.getLogger("msgrad").removeHandler(handler)


def no_reducer(folder: Path) -> dict[str, Any]:
    """The second net is trained by MindSpore's own cell, which reduces."""
    nets = make_net(), make_net()
    for net in nets:
        mg.freeze(net, "1")
    with warnings() as told:
        for net, cell in zip(nets, (WithoutReducer, nn.TrainOneStepCell), strict=True):
            make_step(net, train_cell=cell)(*own_part(0))
    return {"told": [], "warnings": told}


def norms(folder: Path) -> dict[str, Any]:
    """A norm trains, on each rank with the batches of that rank, and is frozen then."""
    net = make_net()
    step = make_step(net)
    with warnings() as told:
        step(*own_part(0))
        mg.freeze(net, "1")
        step(*own_part(1))
    return {
        "told": [],
        "warnings": told,
        "bits": mg.fingerprint(net, "*.weight", "*.bias", "*.gamma"),
    }


def out_of_step(folder: Path) -> dict[str, Any]:
    """Rank 0 changes its stage and rank 1 does not; nothing can follow it."""
    net = make_net()
    step = make_step(net)
    step(*own_part(0))
    if not second():
        mg.freeze(net, "3")
    return {"told": [answer(lambda: step(*own_part(1)).asnumpy())]}


CASES = [
    masks, masks_later, stops, behaviour, weights, rates, nothing_left, only_rank_0_saves,
    missing_file, other_file, holds, holds_later, factors, no_reducer, norms, out_of_step,
]  # fmt: skip


def main() -> None:
    part, folder = sys.argv[1], Path(sys.argv[2])
    name = os.environ.get("MS_NODE_ID", os.environ.get("MS_ROLE", "alone"))
    write(folder / f"{part}.{name}.pid", os.getpid())
    mg.use_device("CPU", distributed=True)
    device = {
        "ranks": communication.get_group_size(),
        "graph": ms.get_context("mode") == ms.GRAPH_MODE,
        **{key: ms.get_auto_parallel_context(key) for key in ("parallel_mode", "gradients_mean")},
        **ms.get_auto_parallel_context("strategy_ckpt_config"),
    }
    write(folder / f"device.{communication.get_rank()}.json", device)
    {"whole": whole, "killed": killed, "resumed": resumed}[part](folder)


if __name__ == "__main__":
    main()
