"""Low-rank adapters: a trained product of two small matrices beside a frozen weight."""

from __future__ import annotations

import math
from typing import Any

import mindspore as ms
from mindspore import mint, nn, ops
from mindspore.common.initializer import HeUniform

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.freezing import apply_behaviour, claims_changed, freeze, records_of
from msgrad.network import copy_of, hide, write
from msgrad.wrappers._wrapper import CellWrapper

_FREEZE = "LoRA"
_KINDS = (nn.Dense, mint.nn.Linear)


class LoRA(CellWrapper):
    """Add a trained low-rank product to a linear layer, whose own weights are frozen.

    ``cell(x) + alpha / rank · B(A(dropout(x)))``, with A of shape (rank, in) drawn as in PEFT and B
    of shape (out, rank) zero, so that the layer gives at first what it gave. The parameters are
    ``<path>.lora_A.weight`` and ``<path>.lora_B.weight``, as in PEFT; `save_trainable` writes files
    that PEFT reads, and `load_weights` reads those of PEFT.

    `merge` puts the product into the weight and `unmerge` takes it out, to the bit; neither
    compiles. `unwrap` takes the adapter off: a merged weight stays merged, the freeze of the
    adapter is undone.

    Args:
        cell: ``nn.Dense`` without an activation, or ``mint.nn.Linear``.
        rank: Rank of the product, at least 1.
        alpha: The product counts ``alpha / rank`` times; None means as large as the rank.
        dropout: Share of the input of A that is dropped in training, in [0, 1).

    Inputs:
        - **x** (Tensor): shape (..., in), floating.

    Outputs:
        Tensor of shape (..., out).

    Raises:
        ArgumentTypeError: ``cell`` is of another kind.
        ArgumentError: It has an activation, or a number is out of range.

    References:
        E. J. Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021,
        https://arxiv.org/abs/2106.09685, section 4.1.

    Examples:
        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.ReLU(), nn.Dense(8, 2))
        >>> _ = mg.freeze(net, "*")
        >>> mg.wrap(net, nn.Dense, wrapper=lambda cell: mg.LoRA(cell, rank=2))
        ['0', '2']
        >>> [p.name for p in net.trainable_params()][:2]
        ['0.lora_A.weight', '0.lora_B.weight']
    """

    def __init__(
        self, cell: nn.Cell, rank: int = 8, alpha: float | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__(cell)
        _check(cell, rank, alpha, dropout)
        weight: Any = cell.weight
        out, inside = weight.shape
        first = HeUniform(negative_slope=math.sqrt(5))
        self.lora_A = nn.Dense(inside, rank, first, has_bias=False, dtype=weight.dtype)
        self.lora_B = nn.Dense(rank, out, "zeros", has_bias=False, dtype=weight.dtype)
        self.lora_dropout = nn.Dropout(p=dropout) if dropout else None
        self.scaling = (rank if alpha is None else alpha) / rank
        # 0 while merged; it can change without compiling
        hide(self, "_share", self.scaling, ms.float32)
        self.__dict__["_kept"] = None
        freeze(cell, "*", name=_FREEZE)

    def construct(self, x: Any) -> Any:
        """Call the wrapped cell, and add the product."""
        given = x if self.lora_dropout is None else self.lora_dropout(x)
        more = self.lora_B(self.lora_A(given))
        return self.cell(x) + more * ops.cast(self._share, more.dtype)

    @property
    def merged(self) -> bool:
        """Whether the weight has the product in it."""
        return self._kept is not None

    def merge(self) -> None:
        """Put the product into the weight; what the layer gives stays the same up to rounding."""
        if not self.merged:
            weight: Any = self.cell.weight
            self.__dict__["_kept"] = copy_of(weight)
            first, second = copy_of(self.lora_A.weight), copy_of(self.lora_B.weight)
            write(weight, ms.Tensor(self._kept + self.scaling * (second @ first), weight.dtype))
            write(self._share, ms.Tensor(0.0, ms.float32))

    def unmerge(self) -> None:
        """Write the weight back as it was before `merge`, to the bit."""
        if self.merged:
            weight: Any = self.cell.weight
            write(weight, ms.Tensor(self._kept, weight.dtype))
            self.__dict__["_kept"] = None
            write(self._share, ms.Tensor(self.scaling, ms.float32))

    def taken_off(self) -> None:
        """Undo the freeze of the wrapped cell."""
        for record in records_of(self.cell).values():
            for claim in [claim for claim in record.claims if claim.patterns == _FREEZE]:
                record.lift(claim)
        claims_changed()
        apply_behaviour(self.cell)

    def extend_repr(self) -> str:
        """Return rank and factor."""
        return f"rank={self.lora_A.weight.shape[0]}, scaling={self.scaling:g}"


def _check(cell: nn.Cell, rank: object, alpha: object, dropout: object) -> None:
    if not isinstance(cell, _KINDS):
        raise ArgumentTypeError(
            f"cell {type(cell).__name__} is no nn.Dense or mint.nn.Linear; name such cells, as in "
            'wrap(net, "*.{q,v}_proj", wrapper=LoRA)'
        )
    if getattr(cell, "activation", None) is not None:
        raise ArgumentError(
            "cell Dense has an activation, behind which the product would be wrong; put the "
            "activation into a cell of its own"
        )
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ArgumentError(f"rank {rank!r} is no rank; give a whole number of at least 1")
    if alpha is not None and not (isinstance(alpha, (int, float)) and math.isfinite(alpha)):
        raise ArgumentError(f"alpha {alpha!r} is no number; give one such as {rank}")
    if not (isinstance(dropout, (int, float)) and 0 <= dropout < 1):
        raise ArgumentError(f"dropout {dropout!r} is no share; give a number in [0, 1)")
