"""What docs/compatibility.md says is true: its recipes print it, and what it calls refused is."""

from __future__ import annotations

import re
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, amp, nn, ops
from mindspore import dataset as ds

import msgrad as mg
from tests.documents.documents import ROOT, blocks_of, printed_by

DOCUMENT = "docs/compatibility.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return printed_by(DOCUMENT, tmp_path_factory.mktemp("compatibility"))


@pytest.mark.parametrize("number", range(len(blocks_of(DOCUMENT))))
def test_a_recipe_prints_what_it_says(printed: list[str], number: int):
    assert printed[number] == blocks_of(DOCUMENT)[number][1]


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", TEXT))
def test_a_link_leads_to_a_heading(link: str):
    name, _, anchor = link.partition("#")
    text = (ROOT / "docs" / name).read_text(encoding="utf-8") if name else TEXT
    headings = [re.sub(r"[^\w -]", "", h.lower()) for h in re.findall("^## (.+)", text, re.M)]
    assert anchor in [heading.replace(" ", "-") for heading in headings]


def network() -> nn.Cell:
    return nn.SequentialCell(nn.Dense(4, 3), nn.Dense(3, 2))


def momentum(parameters: list) -> nn.Cell:
    return nn.Momentum(parameters, 0.1, 0.9)


def step_over(net: nn.Cell, **options: Any) -> mg.TrainStep:
    return mg.TrainStep(net, momentum, nn.MSELoss(), unreached="allow", **options).set_train()


RNG = np.random.default_rng(0)
ROWS = {"x": RNG.normal(size=(5, 4)).astype(np.float32),
        "y": RNG.normal(size=(5, 2)).astype(np.float32)}  # fmt: skip
X, Y = (Tensor(value) for value in ROWS.values())


def rows() -> ds.Dataset:
    """A batch of four rows and one of the row that is left."""
    return ds.NumpySlicesDataset(ROWS, shuffle=False).batch(4)


@pytest.mark.usefixtures("mode")
def test_a_model_with_a_loss_of_its_own_is_refused_with_the_remedy():
    model = ms.Model(step_over(network()), loss_fn=nn.MSELoss())
    with pytest.raises(ValueError, match=r"call step\(x, label\), and give ms\.Model\(step\) no l"):
        model.train(1, rows(), dataset_sink_mode=False)


@pytest.mark.parametrize("level", ["O0", "O2", "O3", "auto"])
def test_a_model_with_an_optimizer_of_its_own_is_refused_with_the_remedy(level: str):
    net = network()
    step = step_over(net)
    with pytest.raises(mg.ArgumentError, match=r"give ms\.Model\(step\) no optimizer"):
        ms.Model(step, optimizer=momentum(net.trainable_params()), amp_level=level,
                 loss_scale_manager=None)  # fmt: skip


REFUSED_BY_MINDSPORE = [
    pytest.param({"amp_level": level}, "'optimizer' is None", id=level)
    for level in ("O1", "O2", "O3", "auto")
] + [
    pytest.param({"loss_scale_manager": manager}, "'optimizer' can not be None", id=name)
    for name, manager in {
        "fixed": amp.FixedLossScaleManager(128.0, False), "dynamic": amp.DynamicLossScaleManager()
    }.items()
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED_BY_MINDSPORE)
def test_precision_and_scale_of_the_model_are_refused_by_mindspore(
    arguments: dict[str, object], message: str
):
    with pytest.raises(ValueError, match=message):
        ms.Model(step_over(network()), **arguments)


@pytest.mark.usefixtures("mode")
def test_a_last_partial_batch_holds_what_is_frozen_and_trains_the_rest():
    net = network()
    mg.freeze(net, "0")
    step = step_over(net)
    before = mg.Snapshot(net)
    ms.Model(step).train(2, rows(), dataset_sink_mode=False)
    assert before.moved() == ["1.weight", "1.bias"]
    assert step.position.step == 4
    assert step.compilations in (0, 2)


def built(level: str, manager: object = None):
    def train_cell(net: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return amp.build_train_network(net, optimizer, level=level, loss_scale_manager=manager)

    return train_cell


def around(kind: type[nn.Cell]):
    return lambda net: kind(nn.WithLossCell(net, nn.MSELoss()), 2)


def recomputed(net: nn.Cell) -> nn.Cell:
    net[0].recompute()
    return net


CASTS = {
    "O1": lambda net: amp.auto_mixed_precision(net, "O1"),
    "O3": lambda net: amp.auto_mixed_precision(net, "O3"),
    "auto": lambda net: amp.auto_mixed_precision(net, "auto"),
    "to_float": lambda net: net.to_float(ms.float16),
    "recompute": recomputed,
}
STEPS = {
    **{name: lambda net, cast=cast: step_over(cast(net)) for name, cast in CASTS.items()},
    "built O0": lambda net: step_over(net, train_cell=built("O0")),
    "built O3": lambda net: step_over(net, train_cell=built("O3")),
    "built auto": lambda net: step_over(net, train_cell=built("auto")),
    "fixed scale": lambda net: step_over(
        net, train_cell=built("O0", amp.FixedLossScaleManager(128.0, False))
    ),
    "pipeline cell": lambda net: mg.TrainStep(
        around(nn.PipelineCell)(net), momentum, unreached="allow"
    ),
    "interleaved": lambda net: mg.TrainStep(
        around(nn.MicroBatchInterleaved)(net), momentum, unreached="allow"
    ),
}


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_what_is_said_to_work_holds_trains_and_changes_its_stage(make):
    net = network()
    step = make(net)
    x, y = X[:4], Y[:4]
    mg.freeze(net, "0")
    before = mg.Snapshot(net)
    step(x, y)
    assert before.moved() == ["1.weight", "1.bias"]
    mg.unfreeze(net, "0")
    mg.freeze(net, "1")
    before = mg.Snapshot(net)
    step(x, y)
    assert before.moved() == ["0.weight", "0.bias"]
    mg.unfreeze(net, "1")
    mg.freeze(net, "0")
    step(x, y)
    assert step.compilations == 2


class Integers(nn.Cell):
    """A layer behind a table of int8, whose flag is on."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ms.Parameter(Tensor(np.ones((4, 4)), ms.int8), name="table")
        self.layer = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.layer(ops.matmul(x, ops.cast(self.table, ms.float32)))


def test_integers_stay_whatever_their_flag():
    net = Integers()
    step = step_over(net)
    before = mg.Snapshot(net)
    step(X, Y)
    assert before.moved() == step.trainable == ["layer.weight", "layer.bias"]
