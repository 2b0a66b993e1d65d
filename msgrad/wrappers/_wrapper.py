"""CellWrapper: a cell around a cell that leaves every name, path and checkpoint key as it was."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from mindspore import Parameter, nn

from msgrad.errors import ArgumentError, ArgumentTypeError
from msgrad.network import rename_hidden

# Looked up on the wrapper alone: a delegated `bprop` would replace its differentiation.
_NEVER_DELEGATED = frozenset({"bprop", "cell", "construct"})


def _sealing(init: Callable[..., None]) -> Callable[..., None]:
    """Mark the object as constructed when the outermost `__init__` returns."""

    @functools.wraps(init)
    def __init__(self: CellWrapper, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if type(self).__init__ is __init__:
            self.__dict__["_sealed"] = True

    return __init__


class CellWrapper(nn.Cell):
    """A cell that stands in the place of another one and keeps all of its names.

    Subclass it and write `construct`. The wrapped cell is `self.cell`; its parameters, paths,
    checkpoint keys, public attributes and methods are found through the wrapper as if it were not
    there, and what is set on the wrapper later goes to the wrapped cell.

    Parameters and cells that a subclass makes in its own `__init__` are trainable and listed
    after those of the wrapped cell, under the same path; their names must not be taken there.
    Buffers registered on a wrapper belong to the wrapped cell.

    Only `construct` is wrapped: a parent that reads the cell's weight, calls another of its
    methods, or keeps a reference of its own, goes past the wrapper. `isinstance` sees the
    wrapper. Methods of `nn.Cell` itself are the wrapper's, even where the wrapped class
    overrides them: `set_train` reaches both, `cells()` lists the wrapped cell. So is everything
    with a leading underscore. In a compiled function ``ms.grad(wrapper)`` does not compile, as
    for every cell that takes ``**kwargs``: differentiate a function that calls it.

    Args:
        cell: The cell to wrap; it is not changed.

    Inputs:
        Those of the wrapped cell.

    Outputs:
        Those of the wrapped cell.

    Raises:
        ArgumentTypeError: `cell` is not a Cell.
        ArgumentError: A parameter or cell of a subclass has a name that the wrapped cell has.

    Examples:
        In a file of its own, since a graph reads the source of `construct`::

            class Damped(mg.CellWrapper):
                def __init__(self, cell, factor):
                    super().__init__(cell)
                    self.factor = factor

                def construct(self, x):
                    return x + self.factor * (self.cell(x) - x)

        >>> from mindspore import nn
        >>> import msgrad as mg
        >>> wrapper = mg.CellWrapper(nn.Dense(4, 2))
        >>> [name for name, _ in wrapper.parameters_and_names()]
        ['weight', 'bias']
        >>> wrapper.out_channels
        2
    """

    # whether it stands for a while only, for msgrad itself
    passing = False

    # Lets other modules step over wrappers without importing this one.
    _msgrad_wrapper = True

    cell: nn.Cell

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _sealing(cls.__init__)

    @_sealing
    def __init__(self, cell: nn.Cell) -> None:
        if not isinstance(cell, nn.Cell):
            raise ArgumentTypeError(
                f"cell {cell!r} is a {type(cell).__name__}, not an nn.Cell; "
                f"give {type(self).__name__} the cell to wrap"
            )
        super().__init__(auto_prefix=False)
        self.cell = cell
        # From here on: the names of a subclass's own cells start with their attribute, as usual.
        self._auto_prefix = True
        # `get_buffer` reads this attribute of the last cell on the path.
        self.__dict__["_buffers"] = cell._buffers
        self._get_attr_from_cell(cell)
        self._has_config_recompute = cell._has_config_recompute
        self.add_flags(training=cell.training)

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped cell."""
        return self.cell(*args, **kwargs)

    def taken_off(self) -> None:
        """Do what is to be done when `unwrap` takes the wrapper off; nothing here."""

    def set_train(self, mode: bool = True) -> nn.Cell:
        """Set the mode of the wrapper and of the wrapped cell, by the latter's own method."""
        super().set_train(mode)
        self.cell.set_train(mode)
        return self

    # --- names: those of the wrapped cell, then the wrapper's own

    def cells_and_names(
        self, cells: set[nn.Cell] | None = None, name_prefix: str = ""
    ) -> Iterator[tuple[str, nn.Cell]]:
        """Walk the wrapped cell under the wrapper's own path; see `nn.Cell.cells_and_names`."""
        seen = cells if cells else set()
        if self in seen:
            return
        seen.add(self)
        yield from self.cell.cells_and_names(seen, name_prefix)
        if self._params:
            yield name_prefix, self
        for name, child in own_cells(self):
            yield from child.cells_and_names(seen, _join(name_prefix, name))

    def parameters_and_names(
        self, name_prefix: str = "", expand: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """List the parameters of the wrapped cell; see `nn.Cell.parameters_and_names`."""
        if not expand:
            yield from self.cell.parameters_and_names(name_prefix, expand=False)
        yield from super().parameters_and_names(name_prefix, expand)

    # --- state: the keys of the wrapped cell

    def state_dict(
        self,
        *args: Any,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Return the state under the keys of the wrapped cell; see `nn.Cell.state_dict`."""
        state = self.cell.state_dict(
            *args, destination=destination, prefix=prefix, keep_vars=keep_vars
        )
        prefix = args[1] if len(args) > 1 and prefix == "" else prefix
        state.update({prefix + name: p for name, p in self._params.items() if p is not None})
        for name, child in own_cells(self):
            child.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return state

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # `load_state_dict` walks `_cells`, so the wrapped cell's keys need the segment "cell." in
        # this dict, which is MindSpore's copy; the hook below takes it out of every message.
        own = {*self._params, *(name for name, _ in own_cells(self))}
        for key in [key for key in state_dict if key.startswith(prefix)]:
            if key[len(prefix) :].split(".", 1)[0] not in own:
                state_dict[f"{prefix}cell.{key[len(prefix) :]}"] = state_dict.pop(key)
        self.__dict__["_loading"] = (prefix, args[-1])
        # The buffers are the wrapped cell's to load.
        self.__dict__["_buffers"] = {}
        try:
            super()._load_from_state_dict(state_dict, prefix, *args)
        finally:
            self.__dict__["_buffers"] = self.cell._buffers

    @property
    def _load_state_dict_post_hooks(self) -> dict[int, Callable[..., None]]:
        return {0: _forget_the_segment}

    # --- attributes: the wrapped cell's, except those that the wrapper was built with

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            cell = self.__dict__.get("_cells", {}).get("cell")
            # Private names are read by MindSpore's own methods: `recompute` broke on them.
            if cell is None or name.startswith("_") or name in _NEVER_DELEGATED:
                raise
        return getattr(cell, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not self._is_own(name):
            setattr(self.cell, name, value)
            return
        if isinstance(value, (Parameter, nn.Cell)) and "_sealed" not in self.__dict__:
            self._check_free(name)
        super().__setattr__(name, value)
        if name == "training":
            self.cell.training = value

    def __delattr__(self, name: str) -> None:
        if self._is_own(name):
            super().__delattr__(name)
        else:
            delattr(self.cell, name)

    def _is_own(self, name: str) -> bool:
        own = self.__dict__
        return (
            "_sealed" not in own
            or name.startswith("_")
            or name in own
            or name in own["_params"]
            or name in own["_cells"]
            or hasattr(type(self), name)
        )

    def _check_free(self, name: str) -> None:
        cell = self.__dict__.get("_cells", {}).get("cell")
        if cell is not None and name != "cell" and hasattr(cell, name):
            raise ArgumentError(
                f"attribute {name!r} of {type(self).__name__} is taken by the wrapped "
                f"{type(cell).__name__}; give the wrapper's parameter or cell another name"
            )

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        rename_hidden(self)

    # --- what Python looks up on the class only

    def __bool__(self) -> bool:
        return bool(self.cell)

    def __len__(self) -> int:
        return len(self.cell)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.cell)

    def __getitem__(self, index: Any) -> Any:
        return self.cell[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.cell[index] = value

    def __delitem__(self, index: Any) -> None:
        del self.cell[index]


def own_parameters(wrapper: CellWrapper) -> list[tuple[str, Parameter]]:
    """List what a subclass added, by the path inside the wrapper: it leaves with the wrapper."""
    own = [(name, p) for name, p in wrapper._params.items() if p is not None]
    for name, child in own_cells(wrapper):
        own.extend(child.parameters_and_names(name))
    return own


def own_cells(wrapper: CellWrapper) -> list[tuple[str, nn.Cell]]:
    """List the cells that a subclass added, by attribute."""
    return [(k, c) for k, c in wrapper._cells.items() if k != "cell" and c is not None]


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _forget_the_segment(wrapper: CellWrapper, incompatible: Any) -> None:
    prefix, errors = wrapper.__dict__.pop("_loading")
    # Only where a key begins, so that a path that merely ends like this one is left alone.
    segment = re.compile(rf"(?<![^\s\"]){re.escape(prefix)}cell\.")
    for texts in (incompatible.missing_keys, incompatible.unexpected_keys, errors):
        texts[:] = [segment.sub(prefix, text) for text in texts]
