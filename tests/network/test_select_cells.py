"""Selecting cells of real networks by their paths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mindspore import nn

import msgrad as mg
from msgrad.network import select_cells
from tests.nets.select_nets import Branchy, Twice, with_loss


def paths(found: list[tuple[str, nn.Cell]]) -> list[str]:
    return [path for path, _ in found]


def dense(path: str, cell: nn.Cell) -> bool:
    return path.startswith("blocks") and isinstance(cell, nn.Dense)


CELLS = [
    pytest.param(["stem.0"], ["stem.0"], ["stem.0"], id="path"),
    pytest.param(
        ["stem*"], ["stem"], ["stem", "stem.0", "stem.1", "stem.2"], id="glob-crosses-dots"
    ),
    pytest.param(["{stem,heads}"], ["stem", "heads"], ["stem", "heads"], id="alternatives"),
    pytest.param(
        ["re:blocks\\.\\d"], ["blocks.0", "blocks.1"], ["blocks.0", "blocks.1"], id="regex"
    ),
    pytest.param(
        [nn.Dense],
        DENSE := ["blocks.0", "blocks.1.0", "heads.digits", "heads.colour"],
        DENSE,
        id="class",
    ),
    pytest.param(
        [nn.SequentialCell, nn.Dense],
        ["stem", "blocks.0", "blocks.1", "heads.digits", "heads.colour"],
        ["stem", "blocks.0", "blocks.1", "blocks.1.0", "heads.digits", "heads.colour"],
        id="classes-one-inside-the-other",
    ),
    pytest.param([dense], ["blocks.0", "blocks.1.0"], ["blocks.0", "blocks.1.0"], id="callable"),
    pytest.param(
        ["stem.*", "!stem.1"], ["stem.0", "stem.2"], ["stem.0", "stem.2"], id="one-taken-away"
    ),
    pytest.param(
        ["!heads", "!blocks"], ["stem"], ["stem", "stem.0", "stem.1", "stem.2"], id="all-but-two"
    ),
    pytest.param(
        ["blocks.*", "!blocks.1"], ["blocks.0"], ["blocks.0"], id="taken-away-with-all-inside"
    ),
    pytest.param(
        [["heads.digits", ["stem.2"]]],
        ["stem.2", "heads.digits"],
        ["stem.2", "heads.digits"],
        id="lists",
    ),
]


@pytest.mark.parametrize(("patterns", "outermost", "everything"), CELLS)
def test_cells_are_chosen_by_path_the_outermost_or_with_the_nested_ones(
    patterns, outermost, everything
):
    net = Branchy()
    assert paths(select_cells(net, *patterns)) == outermost
    assert paths(select_cells(net, *patterns, nested=True)) == everything


@pytest.mark.parametrize(("patterns", "outermost", "everything"), CELLS)
def test_cells_chosen_are_those_mindspore_has_at_these_paths(patterns, outermost, everything):
    net = Branchy()
    there = dict(net.cells_and_names())
    assert all(there[path] is cell for path, cell in select_cells(net, *patterns))


def test_a_callable_gets_each_path_and_cell_once_and_never_the_network():
    net, seen = Twice(), []

    def second(path: str, cell: nn.Cell) -> bool:
        seen.append((path, cell))
        return path == "again"

    assert paths(select_cells(net, second)) == ["outer.0", "again"]
    inside = ["outer.0", "outer.0.0", "outer.0.1", "outer.1"]
    assert paths(seen) == ["outer", *inside, "again", "again.0", "again.1"]


def test_a_cell_chooses_itself():
    net = Branchy()
    assert select_cells(net, net.stem[1]) == [("stem.1", net.stem[1])]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("again", ["outer.0", "again"], id="by-one-path"),
        pytest.param("outer.0", ["outer.0", "again"], id="by-the-other-path"),
        pytest.param(
            nn.SequentialCell, ["outer", "outer.0", "again"], id="inside-a-chosen-one-and-beside-it"
        ),
        pytest.param("!again", ["outer.1"], id="taken-away-at-both"),
    ],
)
def test_a_cell_in_several_places_is_returned_at_each(pattern, expected):
    net = Twice()
    if pattern == "!again":
        assert paths(select_cells(net, "outer.*", pattern)) == expected
    else:
        assert paths(select_cells(net, pattern)) == expected


def test_a_wrapped_cell_is_chosen_as_its_outermost_wrapper_by_class_cell_or_path():
    net = Branchy()
    inner = net.stem[0]
    mg.wrap(net, inner, wrapper=mg.CellWrapper)
    middle = net.stem[0]
    mg.wrap(net, inner, wrapper=mg.StopGradient)
    outer = net.stem[0]
    expected = [("stem.0", outer)]
    assert middle is not outer
    assert select_cells(net, "stem.0") == expected
    assert select_cells(net, nn.Conv2d) == expected
    assert select_cells(net, mg.StopGradient) == expected
    assert select_cells(net, inner) == expected
    assert select_cells(net, middle) == expected


def root(net: nn.Cell) -> object:
    return net


def own_parameter(net: nn.Cell) -> object:
    return net.stem[0].weight


def text(pattern: object) -> Callable[[nn.Cell], object]:
    return lambda net: pattern


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        pytest.param(
            text("steam"),
            mg.NoMatchError,
            r"'steam' matched none of 12 cells; did you mean 'stem'\?$",
            id="misspelt",
        ),
        pytest.param(
            text("stem.0.weight"),
            mg.NoMatchError,
            r"none of 12 cells; it names a parameter; give its cell 'stem\.0'$",
            id="parameter",
        ),
        pytest.param(
            text("*.gamma"),
            mg.NoMatchError,
            r"it names a parameter; give its cell 'stem\.1'$",
            id="parameter-by-glob",
        ),
        pytest.param(
            text("*.bias"),
            mg.NoMatchError,
            r"give its cell 'stem\.0' or 'blocks\.0' or 'blocks\.1\.0'$",
            id="parameters-by-glob",
        ),
        pytest.param(
            text("scale"),
            mg.NoMatchError,
            r"only cells can be chosen here; for the whole network write StopGradient\(net\)$",
            id="parameter-of-the-network",
        ),
        pytest.param(
            own_parameter,
            mg.ArgumentTypeError,
            r"Parameter 'stem\.0\.weight' is no cell; it names .* give its cell 'stem\.0'$",
            id="parameter-object",
        ),
        pytest.param(
            text(""),
            mg.ArgumentError,
            r"pattern '' is the network itself, .* from outside: net = StopGradient\(net\)$",
            id="empty-path",
        ),
        pytest.param(
            root, mg.ArgumentError, r"pattern Branchy\(\.\.\.\) is the network itself", id="network"
        ),
        pytest.param(
            text(nn.Conv3d),
            mg.NoMatchError,
            r"Conv3d matched none of 12 cells; the cells here are SequentialCell, Conv2d,",
            id="class",
        ),
        pytest.param(
            text(nn.ReLU()),
            mg.NoMatchError,
            r"ReLU\(\.\.\.\) matched none of 12 cells; give a path",
            id="cell-of-another-network",
        ),
        pytest.param(
            text(3),
            mg.ArgumentTypeError,
            r"pattern 3 cannot choose cells; give a path, a Cell class",
            id="number",
        ),
        pytest.param(text([]), mg.ArgumentError, r"patterns \(\) are empty", id="none"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_pattern_that_chooses_no_cell_says_what_to_give(made, error, message, nested):
    net = Branchy()
    with pytest.raises(error, match=message):
        select_cells(net, made(net), nested=nested)


def test_a_cell_given_without_the_path_in_front_is_named_with_it():
    with pytest.raises(mg.NoMatchError, match=r"did you mean '_backbone\.layers\.3'\?$"):
        select_cells(with_loss(), "layers.3")


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        pytest.param(
            ["stem", "!stem.1"],
            r"'stem\.1' stands inside the chosen 'stem'; choose 'stem\.\*' instead of 'stem'$",
            id="inside-a-chosen-cell",
        ),
        pytest.param(
            ["!blocks.1.0"],
            r"stands inside the chosen 'blocks'; choose 'blocks\.\*'",
            id="from-everything",
        ),
        pytest.param(
            ["stem.0", "!heads"], r"'!heads' takes away none of the 1 chosen before it", id="beside"
        ),
    ],
)
def test_a_negation_without_effect_on_cells_is_refused(patterns, message):
    with pytest.raises(mg.NoMatchError, match=message):
        select_cells(Branchy(), *patterns)


def test_missing_cells_may_be_allowed():
    assert paths(select_cells(Branchy(), "nix", nn.Conv3d, "stem", "!stem.1", missing_ok=True)) == [
        "stem"
    ]
