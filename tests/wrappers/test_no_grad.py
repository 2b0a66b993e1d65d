"""Results that are constants for automatic differentiation."""

from __future__ import annotations

import mindspore as ms
import pytest
from mindspore import Tensor, nn, ops

import msgrad as mg
from tests.nets.constant_nets import INPUT, NETS, Assigning, Cube, Function, gradients, squared

pytestmark = pytest.mark.usefixtures("mode")


@pytest.mark.parametrize("kind", NETS)
def test_the_result_is_a_constant_and_the_rest_has_its_gradient(kind: type[nn.Cell]):
    # the parameters beside w have no other way to the loss
    assert gradients(kind()) == kind.expected


def test_without_the_decorator_the_gradient_would_flow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tests.nets.constant_nets.squared", ops.square)
    # w³ x³: 216, dx 3 w³ x², dw 3 w² x³
    assert gradients(Function()) == (216.0, 216.0, 324.0, 0.0)


def test_what_the_function_assigns_is_assigned():
    net = Assigning()
    net(INPUT)
    assert net.other.asnumpy().tolist() == [3.0]


def test_a_second_derivative_has_no_term_from_the_constant():
    # x² held: (x² · x²)'' = 2 x²; with the gradient it would be 12 x²
    second = ops.grad(ops.grad(Cube()))(Tensor(3.0))
    assert float(second.asnumpy()) == 18.0


def test_a_jit_function_takes_the_constant():
    @ms.jit
    def loss(x):
        return squared(x) * x

    assert float(ms.grad(loss)(Tensor(3.0)).asnumpy()) == 9.0


def test_name_and_documentation_stay():
    @mg.no_grad
    def teacher(x):
        """The target."""
        return x

    assert (teacher.__name__, teacher.__doc__) == ("teacher", "The target.")
    # the graph parser would follow it and compile the function without the stop
    assert not hasattr(teacher, "__wrapped__")


@pytest.mark.parametrize("given", [3, nn.ReLU])
def test_what_cannot_be_called_with_inputs_is_refused(given: object):
    with pytest.raises(mg.ArgumentTypeError, match="cannot be called; give a function"):
        mg.no_grad(given)  # pyright: ignore[reportArgumentType]
