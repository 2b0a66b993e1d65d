"""Parameter groups: the rate and the decay of each weight, by rules over names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore import dtype as mstype
from mindspore.nn.learning_rate_schedule import LearningRateSchedule

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.freezing import records_of
from msgrad.network import Pattern, Selection, nearest, select, show

_FIELDS = ("lr_scale", "weight_decay")
Rate = float | int | Sequence[float] | np.ndarray | Tensor | LearningRateSchedule


class _ScaledSchedule(LearningRateSchedule):
    """A learning rate schedule times a number."""

    def __init__(self, schedule: LearningRateSchedule, scale: float) -> None:
        super().__init__()
        self.schedule = schedule
        self.scale = scale

    def construct(self, global_step: Tensor) -> Tensor:
        return self.schedule(global_step) * self.scale


def param_groups(
    net: nn.Cell,
    rules: Mapping[Pattern, Mapping[str, float]],
    *,
    lr: Rate,
    weight_decay: float = 0.0,
    parameters: Iterable[Parameter] | None = None,
) -> list[dict[str, Any]]:
    """Group the weights for an optimizer by rules for their rate and decay.

    Fields compose: for each weight and field the last rule that matches counts. Every group says
    its rate and its decay, so that 0 is 0 and nothing is inherited from the optimizer; none is
    empty; weights are in network order within a group, and groups in the order of their first
    weight. Flags are neither read where ``parameters`` is given nor ever written.

    Args:
        net: Network that the patterns are matched against.
        rules: Patterns (see `select`) with ``lr_scale``, a factor of the rate, and
            ``weight_decay``. A rule for weights that do not train now is no error.
        lr: Rate: a number, a list of one rate per step, or a schedule of
            ``nn.learning_rate_schedule``; the last two for optimizers of ``nn``.
        weight_decay: Decay of the weights that no rule gives one.
        parameters: What to group, such as the list that a `TrainStep` passes on; what trains in
            ``net`` by default.

    Returns:
        Groups as the optimizers of ``nn``, ``mindspore.experimental.optim`` and ``mint.optim``
        take them: dicts of ``params``, ``lr`` and ``weight_decay``.

    Raises:
        NoMatchError: A pattern selects nothing in ``net``.
        ArgumentError: A field is unknown, a number is negative or not finite, or there is nothing
            to group.
        ArgumentTypeError: A rule is no dict, or a value no number.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 2))
        >>> rules = {"0": {"lr_scale": 0.5}, "*.bias": {"weight_decay": 0.0}}
        >>> for group in mg.param_groups(net, rules, lr=0.1, weight_decay=0.01):
        ...     print([p.name for p in group["params"]], group["lr"], group["weight_decay"])
        ['0.weight'] 0.05 0.01
        ['0.bias'] 0.05 0.0
        ['1.weight'] 0.1 0.01
        ['1.bias'] 0.1 0.0
    """
    _check_number("weight_decay", weight_decay)
    chosen = _grouped(net, parameters)
    fields = {id(p): {"lr_scale": 1.0, "weight_decay": float(weight_decay)} for p in chosen}
    for pattern, rule in rules.items():
        _check_rule(pattern, rule)
        for parameter in select(net, pattern):
            if id(parameter) in fields:
                fields[id(parameter)].update({n: float(v) for n, v in rule.items()})
    groups: dict[tuple[float, float], list[Parameter]] = {}
    for parameter in chosen:
        own = fields[id(parameter)]
        groups.setdefault((own["lr_scale"], own["weight_decay"]), []).append(parameter)
    rates = {scale: _scaled(lr, scale) for scale, _ in groups}
    return [
        {"params": weights, "lr": rates[scale], "weight_decay": decay}
        for (scale, decay), weights in groups.items()
    ]


def layer_decay(
    net: nn.Cell,
    layers: Sequence[Pattern],
    *,
    lr: Rate,
    decay: float,
    weight_decay: float = 0.0,
    rules: Mapping[Pattern, Mapping[str, float]] | None = None,
    parameters: Iterable[Parameter] | None = None,
) -> list[dict[str, Any]]:
    """Group the weights so that layers nearer to the input have a lower rate.

    Layer ``i`` of ``n`` gets ``lr · decay^(n-1-i)``; weights in no layer get ``lr``.

    Args:
        net: Network that the patterns are matched against.
        layers: Patterns from input to output, one for each layer.
        lr: Rate of the last layer, as in `param_groups`.
        decay: Factor from one layer to the one before it, above 0.
        weight_decay: Decay of the weights that no rule gives one.
        rules: Further rules, as in `param_groups`; they come last.
        parameters: What to group, as in `param_groups`.

    Returns:
        Groups, as `param_groups` gives them.

    Raises:
        NoMatchError: A layer selects nothing.
        ArgumentError: No layers, ``decay`` is not above 0, or as in `param_groups`.

    References:
        J. Howard, S. Ruder, "Universal Language Model Fine-tuning for Text Classification", 2018,
        https://arxiv.org/abs/1801.06146, section 3.2 (discriminative fine-tuning).

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.Dense(8, 8), nn.Dense(8, 2))
        >>> groups = mg.layer_decay(net, ["0", "1", "2"], lr=1.0, decay=0.5)
        >>> [(group["params"][0].name, group["lr"]) for group in groups]
        [('0.weight', 0.25), ('1.weight', 0.5), ('2.weight', 1.0)]
    """
    if isinstance(layers, str) or not layers:
        raise ArgumentError(f"layers {layers!r} is no list of layers; give one pattern for each")
    _check_number("decay", decay)
    if decay == 0:
        raise ArgumentError("decay 0 stops all layers but the last; give more, or freeze them")
    last = len(layers) - 1
    by_layer = {
        Selection(list(select(net, layer))): {"lr_scale": float(decay) ** (last - number)}
        for number, layer in enumerate(layers)
    }
    return param_groups(
        net,
        {**by_layer, **(rules or {})},
        lr=lr,
        weight_decay=weight_decay,
        parameters=parameters,
    )


def no_decay(net: nn.Cell) -> Selection:
    """Select what is usually not decayed: biases, and the weights of norm layers.

    These are the trainable parameters of at most one dimension; a `Selection` is itself a pattern,
    so ``{mg.no_decay(net): {"weight_decay": 0.0}}`` is a rule.

    Args:
        net: Network to look at.

    Returns:
        The parameters in network order.

    Raises:
        ArgumentTypeError: ``net`` is no Cell.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.LayerNorm((8,)))
        >>> mg.no_decay(net).names
        ['0.bias', '1.gamma', '1.beta']
    """
    records = records_of(net) if isinstance(net, nn.Cell) else {}
    return Selection([p for p in select(net, "*") if records[id(p)].design and len(p.shape) <= 1])


def _grouped(net: nn.Cell, parameters: Iterable[Parameter] | None) -> list[Parameter]:
    records = records_of(net)
    if parameters is None:
        wanted = {key for key, record in records.items() if record.trains}
    else:
        given = list(parameters)
        wanted = {id(p) for p in given}
        foreign = [p.name for p in given if id(p) not in records]
        if foreign:
            raise ArgumentError(
                f"parameters has {len(foreign)} that net does not hold: {', '.join(foreign[:3])}; "
                "give the network that they belong to"
            )
    chosen = [record.parameter for key, record in records.items() if key in wanted]
    if not chosen:
        raise ArgumentError(f"nothing to group: none of {len(records)} parameters trains now")
    return chosen


def _check_rule(pattern: Pattern, rule: object) -> None:
    label = f"rule {show(pattern)}"
    if not isinstance(rule, Mapping):
        raise ArgumentTypeError(f"{label} is {rule!r}; give a dict such as {{'lr_scale': 0.1}}")
    for field, value in rule.items():
        if field not in _FIELDS:
            near = nearest(str(field), _FIELDS, 1) or list(_FIELDS)
            raise ArgumentError(
                f"{label} has an unknown field {field!r}; did you mean {near[0]!r}? "
                f"Known are {' and '.join(_FIELDS)}"
            )
        _check_number(f"{label} has {field}", value, f", or freeze {show(pattern)} to hold it")


def _check_number(label: str, value: object, otherwise: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ArgumentTypeError(f"{label} {value!r}, which is no number; give 0 or more")
    if not (np.isfinite(value) and value >= 0):
        raise ArgumentError(f"{label} {value!r}; give 0 or more{otherwise}")


def _scaled(lr: Any, scale: float) -> Any:
    """Return the rate times a factor, in the form that it was given in."""
    if scale == 1.0:
        return lr
    if isinstance(lr, LearningRateSchedule):
        return _ScaledSchedule(lr, scale)
    if isinstance(lr, Tensor):
        return Tensor(lr.asnumpy() * scale, mstype.float32)
    if isinstance(lr, (bool, str, nn.Cell)):
        raise ArgumentTypeError(f"lr {lr!r} cannot be scaled; give a number, a list or a schedule")
    if isinstance(lr, (int, float)):
        return lr * scale
    return [float(rate) * scale for rate in lr]
