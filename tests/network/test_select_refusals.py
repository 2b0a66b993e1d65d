"""What cannot be selected, and what the error says to do."""

from __future__ import annotations

import pytest
from mindspore import Parameter, nn

import msgrad as mg
from msgrad.network import select_cells
from tests.nets.select_nets import Branchy, weight


def never(name: str, parameter: Parameter) -> bool:
    return False


@pytest.mark.parametrize(
    ("pattern", "error", "message"),
    [
        pytest.param(
            "stem.0.wieght",
            mg.NoMatchError,
            r"none of 16 parameters; did you mean 'stem\.0\.weight'\?$",
            id="D3-name",
        ),
        pytest.param(
            "head",
            mg.NoMatchError,
            r"none of 16 parameters; did you mean 'heads'\?$",
            id="D3-path-of-a-cell",
        ),
        pytest.param(
            "!steam",
            mg.NoMatchError,
            r"'!steam' matched none of 16 parameters; did you mean 'stem'\?$",
            id="D3-negated",
        ),
        pytest.param("re:(", mg.ArgumentError, r"at position 3;", id="D4-regex"),
        pytest.param(
            nn.Conv3d,
            mg.NoMatchError,
            r"the cells that own parameters are Branchy, Conv2d, BatchNorm2d, Dense$",
            id="class-without-instance",
        ),
        pytest.param(
            nn.ReLU,
            mg.NoMatchError,
            r"pattern ReLU matched none of 16 parameters",
            id="class-without-parameters",
        ),
        pytest.param(
            never,
            mg.NoMatchError,
            r"pattern never matched none of 16 parameters; give a name",
            id="callable-never-true",
        ),
        pytest.param(
            weight("scale"),
            mg.NoMatchError,
            r"Parameter 'scale' matched none of 16 parameters; it belongs to another network",
            id="parameter-of-another-network",
        ),
        pytest.param(
            mg.Selection([]),
            mg.NoMatchError,
            r"pattern Selection\(\[\]\) matched none",
            id="empty-selection",
        ),
        pytest.param(
            3,
            mg.ArgumentTypeError,
            r"pattern 3 cannot choose parameters; give a name, a Cell class",
            id="number",
        ),
        pytest.param(None, mg.ArgumentTypeError, r"pattern None cannot choose", id="None"),
        pytest.param(b"stem", mg.ArgumentTypeError, r"pattern b'stem' cannot choose", id="bytes"),
        pytest.param(
            int, mg.ArgumentTypeError, r"pattern int cannot choose", id="class-that-is-no-cell"
        ),
        pytest.param(
            nn.ReLU(),
            mg.NoMatchError,
            r"pattern ReLU\(\.\.\.\) matched none of 16 parameters; none of its parameters is in",
            id="cell",
        ),
    ],
)
def test_a_pattern_that_selects_nothing_says_what_there_is(pattern, error, message):
    with pytest.raises(error, match=message):
        mg.select(Branchy(), "scale", pattern)


@pytest.mark.parametrize(
    "patterns", [pytest.param([], id="none"), pytest.param([[], ()], id="empty-lists")]
)
def test_no_pattern_at_all_is_refused(patterns):
    with pytest.raises(mg.ArgumentError, match=r"patterns \(\) are empty; give at least one, '\*'"):
        mg.select(Branchy(), *patterns)


def test_a_malformed_pattern_is_reported_although_an_earlier_one_matches_nothing():
    with pytest.raises(mg.ArgumentError, match=r"'heads\.\{' has an unbalanced '\{' at position 6"):
        mg.select(Branchy(), "nothing", "heads.{")


def test_a_negation_that_takes_nothing_away_is_refused():
    with pytest.raises(mg.NoMatchError, match=r"'!stem' takes away none of the 3 chosen before it"):
        mg.select(Branchy(), "heads", "!stem")


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        pytest.param(
            "stem", r"exclude 'stem' takes away none of 3 chosen parameters", id="not-chosen"
        ),
        pytest.param(nn.BatchNorm2d, r"exclude BatchNorm2d takes away none of 3", id="class"),
        pytest.param("haeds", r"'haeds' matched none of 16 .* did you mean 'heads'", id="misspelt"),
    ],
)
def test_an_exclude_that_takes_nothing_away_is_refused(exclude, message):
    with pytest.raises(mg.NoMatchError, match=message):
        mg.select(Branchy(), "heads", exclude=["heads.colour", exclude])


def test_what_is_missing_may_be_allowed_for_every_kind_of_pattern():
    net = Branchy()
    patterns = ["nothing", nn.Conv3d, never, weight("x"), mg.Selection([]), "scale", "!heads"]
    assert mg.select(net, *patterns, exclude=[nn.ReLU, "gate"], missing_ok=True).names == ["scale"]


@pytest.mark.parametrize(
    "net",
    [
        pytest.param("heads", id="patterns-only"),
        pytest.param(nn.Dense, id="class"),
        pytest.param(None, id="None"),
    ],
)
@pytest.mark.parametrize("function", [mg.select, select_cells])
def test_a_network_that_is_no_cell_is_refused(function, net):
    with pytest.raises(mg.ArgumentTypeError, match=r"net .* is no Cell; give the network, then"):
        function(net, "heads")


def test_parameters_of_one_name_are_refused_all_at_once_with_a_way_out():
    net = Branchy()
    net.heads["digits"].weight.name = "scale"
    net.heads["digits"].bias.name = "scale"
    message = (
        r"^name 'scale' belongs to two parameters, at 'scale' and at 'heads\.digits\.weight'; "
        r"name 'scale' belongs to two parameters, at 'scale' and at 'heads\.digits\.bias'; give"
    )
    with pytest.raises(mg.ConflictError, match=message):
        mg.select(net, "stem")
    for path, parameter in net.parameters_and_names():
        parameter.name = path
    mg.select(net, "stem")


class Growing(nn.Cell):
    """MindSpore names what is appended to a CellList of one after that one."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.CellList([nn.SequentialCell(nn.Dense(2, 2), nn.ReLU())])
        self.scales.append(nn.SequentialCell(nn.Dense(2, 2), nn.ReLU()))


def test_the_path_of_a_cell_takes_what_lies_there_and_not_what_is_named_so():
    net = Growing()
    names = [p.name for p in net.get_parameters()]
    assert names[2:] == ["scales.0.1.0.weight", "scales.0.1.0.bias"]
    assert mg.select(net, "scales.0").names == ["scales.0.0.weight", "scales.0.0.bias"]
    assert mg.select(net, "scales.1").names == names[2:]
    # the full name is that of one
    assert mg.select(net, names[2]).names == [names[2]]
    assert mg.select(net, "*").names == names
    frozen = mg.freeze(net, "scales.0")
    assert frozen.names == names[:2]


@pytest.mark.parametrize("pattern", ["scales.0.*", "scales.{0..0}", "re:scales\\.0.*weight"])
def test_a_pattern_that_takes_some_by_path_and_others_by_name_is_refused_with_both(pattern: str):
    net = Growing()
    message = (
        r"by their paths, such as 'scales\.0\.0\.weight', and \d that lie elsewhere by their "
        r"names, such as 'scales\.0\.1\.0\.weight' at 'scales\.1\.0\.weight'; give each its path"
    )
    with pytest.raises(mg.ConflictError, match=message):
        mg.freeze(net, pattern)
    assert not any(not p.requires_grad for p in net.get_parameters())
    for path, parameter in net.parameters_and_names():
        parameter.name = path
    assert {n[:8] for n in mg.freeze(net, pattern).names} == {"scales.0"}
