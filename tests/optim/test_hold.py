"""What is held at run time keeps its bits and its state, and nothing is compiled for it."""

from __future__ import annotations

import mindspore as ms
import pytest
from mindspore import mint

from tests.optim.hold_training import OPTIMIZERS, Cell, Functional, Jitted, Make, assert_it_holds

ROWS_OF_TABLE = [pytest.param(make, id=name) for name, make in OPTIMIZERS.items()]
FEW = [pytest.param(OPTIMIZERS[name], id=name) for name in ("sgd-momentum", "adamw", "adam")]


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("make", ROWS_OF_TABLE)
def test_held_weights_rows_and_state_keep_their_bits_under_every_optimizer(make: Make):
    assert_it_holds(make, Cell)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("style", [Functional, Jitted], ids=["functional", "jit"])
@pytest.mark.parametrize("make", FEW)
def test_holding_works_in_every_style_of_training(make: Make, style: type):
    assert_it_holds(make, style)


@pytest.mark.skipif(
    tuple(map(int, ms.__version__.split(".")[:2])) < (2, 10),
    reason="mint.optim.SGD moves nothing on the CPU before 2.10, and in PYNATIVE_MODE",
)
def test_holding_works_under_mint_in_a_graph():
    assert_it_holds(lambda p: mint.optim.SGD(p, 0.1, momentum=0.9), Cell)
