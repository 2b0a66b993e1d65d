"""Parameters as one vector, and back."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

import msgrad as mg
from tests.nets.update_nets import NumpyRun, linear, run_with_change, three, values

pytestmark = pytest.mark.usefixtures("mode")


def flat(net: nn.Cell) -> np.ndarray:
    return np.concatenate([v.ravel() for v in values(net).values()])


def test_a_vector_holds_the_elements_in_order():
    net = three()
    assert (
        mg.parameters_to_vector(net.trainable_params()).asnumpy().tobytes() == flat(net).tobytes()
    )
    backwards = mg.parameters_to_vector([net[2].bias, net[1].weight]).asnumpy()
    expected = np.concatenate([net[2].bias.asnumpy(), net[1].weight.asnumpy().ravel()])
    assert backwards.tobytes() == expected.tobytes()


def test_a_selection_is_a_list_of_parameters():
    net = three()
    vector = mg.parameters_to_vector(mg.select(net, "1"))
    expected = np.concatenate([net[1].weight.asnumpy().ravel(), net[1].bias.asnumpy()])
    assert vector.asnumpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("count", [1, 2])
def test_a_vector_is_a_copy(count: int):
    net = three()
    chosen = net.trainable_params()[:count]
    vector = mg.parameters_to_vector(chosen)
    before = vector.asnumpy().copy()
    for parameter in chosen:
        ops.assign(parameter, ops.zeros_like(parameter))
    assert vector.asnumpy().tobytes() == before.tobytes()
    ops.assign(chosen[0], chosen[0] + 1)
    kept = chosen[0].asnumpy().copy()
    vector.asnumpy()[:] = 7
    assert chosen[0].asnumpy().tobytes() == kept.tobytes()


def test_a_vector_goes_back_exactly():
    net = three()
    before = values(net)
    new = -2.0 * flat(net)
    mg.vector_to_parameters(Tensor(new), net.trainable_params())
    assert {n: v.tobytes() for n, v in values(net).items()} == {
        n: (-2.0 * v).tobytes() for n, v in before.items()
    }


def test_only_the_given_parameters_are_written():
    net = three()
    before = values(net)
    mg.vector_to_parameters(Tensor(np.arange(3, dtype=np.float32)), [net[2].weight])
    got = values(net)
    assert got.pop("2.weight").tolist() == [[0.0, 1.0, 2.0]]
    assert all(v.tobytes() == before[n].tobytes() for n, v in got.items())


@pytest.mark.parametrize("style", ["cell", "functional", "jit"])
def test_the_next_step_uses_the_vector_and_the_optimizer_keeps_the_weight(style: str):
    net = linear()
    new = Tensor(np.array([1.0, -1.0], np.float32))
    run_with_change(style, net, lambda: mg.vector_to_parameters(new, [net.weight]))
    expected = NumpyRun()
    expected.step()
    expected.step()
    expected.w = np.array([[1.0, -1.0]], np.float32)
    expected.step()
    expected.step()
    np.testing.assert_allclose(net.weight.asnumpy(), expected.w, rtol=1e-5)


class Reversing(nn.Cell):
    """Turns its parameters round, inside a graph, and returns what they are then."""

    def __init__(self, parameters: list[Parameter]) -> None:
        super().__init__()
        self.parameters = ParameterTuple(parameters)

    def construct(self) -> Tensor:
        vector = mg.parameters_to_vector(self.parameters)
        mg.vector_to_parameters(ops.flip(vector, (0,)), self.parameters)
        return mg.parameters_to_vector(self.parameters)


class SquaredNorm(nn.Cell):
    """A penalty on all parameters at once."""

    def __init__(self, parameters: list[Parameter]) -> None:
        super().__init__()
        self.parameters = ParameterTuple(parameters)

    def construct(self, scale: Tensor) -> Tensor:
        vector = mg.parameters_to_vector(self.parameters)
        return (scale * vector * vector).sum()


def test_both_work_inside_a_graph():
    net = three()
    expected = flat(net)[::-1]
    got = Reversing(list(net.trainable_params()))()
    assert got.asnumpy().tobytes() == expected.tobytes()
    assert flat(net).tobytes() == expected.tobytes()


def test_the_gradient_flows_through_the_vector():
    net = three()
    weights = ParameterTuple(net.trainable_params())
    gradient = ops.grad(SquaredNorm(list(weights)), None, weights)(Tensor(3.0))
    expected = {n: 6 * v for n, v in values(net).items()}
    got = {p.name: g.asnumpy() for p, g in zip(weights, gradient, strict=True)}
    assert {n: v.tobytes() for n, v in got.items()} == {n: v.tobytes() for n, v in expected.items()}


WRONG = [
    pytest.param(np.zeros(60, np.float32), r"float32 \(17,\)\nvector: float32 \(60,\)", id="long"),
    pytest.param(np.zeros(16, np.float32), r"float32 \(17,\)\nvector: float32 \(16,\)", id="short"),
    pytest.param(np.zeros(17, np.float16), r"float32 \(17,\)\nvector: float16 \(17,\)", id="dtype"),
    pytest.param(
        np.zeros((17, 1), np.float32), r"float32 \(17,\)\nvector: float32 \(17, 1\)", id="matrix"
    ),
]


@pytest.mark.parametrize(("vector", "message"), WRONG)
def test_a_vector_that_does_not_fit_changes_nothing(vector: np.ndarray, message: str):
    net = three()
    before = flat(net)
    with pytest.raises(
        mg.ShapeError, match=rf"vector does not fit 6 parameters.*\nparameters: {message}"
    ):
        mg.vector_to_parameters(Tensor(vector), net.trainable_params())
    assert flat(net).tobytes() == before.tobytes()


def mixed() -> list[Parameter]:
    return [
        Parameter(Tensor(np.ones(2), dtype), name=name)
        for name, dtype in (("a", ms.float32), ("b", ms.float32), ("c", ms.float16))
    ]


def test_parameters_of_different_dtypes_are_refused_by_name():
    with pytest.raises(mg.ShapeError, match=r"different dtypes.*\na: float32\nc: float16"):
        mg.parameters_to_vector(mixed())
    parameters = mixed()
    with pytest.raises(mg.ShapeError, match=r"different dtypes.*\na: float32\nc: float16"):
        mg.vector_to_parameters(Tensor(np.zeros(6), ms.float32), parameters)
    assert [p.asnumpy().tolist() for p in parameters] == [[1.0, 1.0]] * 3


def test_inside_a_graph_they_are_refused_too():
    with pytest.raises(mg.ShapeError, match=r"different dtypes"):
        SquaredNorm(mixed())(Tensor(1.0))


def test_no_parameters_are_refused():
    with pytest.raises(mg.ArgumentError, match=r"parameters \(\) are empty"):
        mg.parameters_to_vector([])
    with pytest.raises(mg.ArgumentError, match=r"parameters \(\) are empty"):
        mg.vector_to_parameters(Tensor([1.0]), [])


def test_a_network_in_place_of_a_list_is_refused_with_what_to_give():
    net = nn.Dense(2, 1)
    told = r"parameters is a Cell; give a list, as net\.trainable_params\(\)"
    with pytest.raises(mg.ArgumentTypeError, match=told):
        mg.parameters_to_vector(net)  # pyright: ignore
    with pytest.raises(mg.ArgumentTypeError, match=told):
        mg.vector_to_parameters(Tensor([1.0]), net)  # pyright: ignore
