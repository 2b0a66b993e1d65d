"""A fingerprint changes with every bit, name, shape and type of a weight, and with nothing else."""

from __future__ import annotations

import copy
import hashlib

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

import msgrad as mg

pytestmark = pytest.mark.usefixtures("mode")


class One(nn.Cell):
    """One parameter of any name, shape and type."""

    def __init__(self, value: np.ndarray, dtype: object = ms.float32, name: str = "w") -> None:
        super().__init__()
        self.w = Parameter(Tensor(value, dtype), name=name)


def test_it_is_the_hash_of_name_type_shape_and_bytes():
    value = np.array([[1.5, -0.0]], np.float32)
    expected = hashlib.sha256(b"18|w|float32|(1, 2)|8" + value.tobytes()).hexdigest()
    assert mg.fingerprint(One(value)) == expected


OTHERS = [
    pytest.param(lambda: One(np.array([0.0, 1.0])), id="a-bit"),
    pytest.param(lambda: One(np.array([-0.0, 0.0])), id="the-sign-of-a-zero"),
    pytest.param(lambda: One(np.zeros((2, 1))), id="shape"),
    pytest.param(lambda: One(np.zeros(2), ms.int32), id="type"),
    pytest.param(lambda: One(np.zeros(2), ms.bfloat16), id="bfloat16"),
    pytest.param(lambda: One(np.zeros(2), name="v"), id="name"),
]


@pytest.mark.parametrize("make", OTHERS)
def test_another_bit_shape_type_or_name_gives_another_one(make):
    assert mg.fingerprint(One(np.zeros(2))) != mg.fingerprint(make())


SAME = [
    pytest.param(lambda net: mg.freeze(net, "0"), id="freezing"),
    pytest.param(lambda net: mg.stop_gradient(net, "0"), id="wrapping"),
    pytest.param(lambda net: net.set_train(), id="training-mode"),
]


@pytest.mark.parametrize("change", SAME)
def test_flags_wrappers_modes_and_copies_do_not_count(change):
    net = nn.SequentialCell(nn.Dense(4, 8), nn.BatchNorm1d(8), nn.Dense(8, 2))
    before, twin = mg.fingerprint(net), copy.deepcopy(net)
    change(net)
    assert mg.fingerprint(net) == before == mg.fingerprint(twin)


def test_patterns_choose_and_statistics_count():
    net = nn.SequentialCell(nn.Dense(4, 8), nn.BatchNorm1d(8))
    whole, dense, norm = (mg.fingerprint(net, *p) for p in ((), ("0",), ("1",)))
    assert len({whole, dense, norm}) == 3
    ops.assign(net[1].moving_mean, Tensor(np.ones(8, np.float32)))
    assert mg.fingerprint(net, "0") == dense
    assert mg.fingerprint(net, "1") != norm
    assert mg.fingerprint(net) != whole
    with pytest.raises(mg.NoMatchError, match="pattern '9' matched none of 6 parameters"):
        mg.fingerprint(net, "9")


def test_the_order_of_the_weights_does_not_count():
    weights = {name: Parameter(Tensor([1.0, 2.0]), name=name) for name in "ab"}
    first, second = nn.Cell(), nn.Cell()
    for net, names in ((first, "ab"), (second, "ba")):
        for name in names:
            net.insert_param_to_cell(name, weights[name])
    assert mg.fingerprint(first) == mg.fingerprint(second)
