"""Files with one bit flipped: what msgrad wrote is refused, or read as it was written."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

import msgrad as mg

X, Y = Tensor(np.ones((2, 3), np.float32)), Tensor(np.zeros((2, 2), np.float32))


def made() -> tuple[nn.Cell, mg.TrainStep]:
    net = nn.SequentialCell(nn.Dense(3, 4, "ones", "ones"), nn.Dense(4, 2, "ones", "ones"))
    mg.freeze(net, "0")
    return net, mg.TrainStep(net, lambda p: nn.Momentum(p, 0.1, 0.9), nn.MSELoss()).set_train()


def bits(cell: nn.Cell) -> dict[str, bytes]:
    return {p.name: p.asnumpy().tobytes() for p in cell.get_parameters()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """What the ways to save wrote, and the weights and state then."""
    folder = tmp_path_factory.mktemp("files")
    net, step = made()
    step(X, Y)
    step.save(folder / "run.ckpt")
    mg.save_trainable(net, folder / "head.ckpt")
    ms.save_checkpoint(net, str(folder / "plain.ckpt"))
    return folder, bits(step)


def load_run(path: Path) -> nn.Cell:
    _, step = made()
    step.load(path)
    return step


def load_head(path: Path) -> nn.Cell:
    net, _ = made()
    mg.load_weights(net, path)
    return net


def load_weights(path: Path) -> nn.Cell:
    net, _ = made()
    assert mg.load_weights(net, path).verified
    return net


@pytest.mark.parametrize(
    ("name", "load"),
    [("run.ckpt", load_run), ("run.ckpt", load_weights), ("head.ckpt", load_head)],
    ids=["step", "weights-of-a-step", "trainable"],
)
def test_a_flipped_bit_is_refused_or_changes_nothing(
    files: tuple[Path, dict[str, bytes]], name: str, load: Callable, tmp_path: Path
):
    folder, saved = files
    for other in folder.iterdir():
        (tmp_path / other.name).write_bytes(other.read_bytes())
    whole = (folder / name).read_bytes()
    assert bits(load(tmp_path / name)).items() <= saved.items()
    draw = random.Random(0)
    refused = 0
    for place in sorted(draw.sample(range(len(whole)), 60)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << draw.randrange(8)
        (tmp_path / name).write_bytes(flipped)
        try:
            found = bits(load(tmp_path / name))
        except mg.CheckpointError:
            refused += 1
        else:
            assert found.items() <= saved.items(), place
    assert refused > 50


def test_a_plain_checkpoint_is_told_apart_by_its_report(files: tuple[Path, dict[str, bytes]]):
    net, _ = made()
    assert not mg.load_weights(net, files[0] / "plain.ckpt").verified
    assert mg.load_weights(net, files[0] / "head.ckpt").verified
