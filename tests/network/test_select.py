"""Selecting parameters of real networks by patterns of every kind."""

from __future__ import annotations

import fnmatch
import random

import pytest
from mindspore import Parameter, nn

import msgrad as mg
from tests.nets.select_nets import (
    Attributes,
    Branchy,
    Gained,
    Layered,
    Narrow,
    Twice,
    by_identity,
    with_loss,
)
from tests.nets.shared import Tied

# --- strings


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        pytest.param(["scale"], ["scale"], id="own-parameter"),
        pytest.param(["gate"], ["gate"], id="member-of-a-tuple"),
        pytest.param(["mix[0]"], ["mix[0]"], id="brackets-in-a-name"),
        pytest.param(["stem.0"], ["stem.0.weight", "stem.0.bias"], id="in-a-sequence"),
        pytest.param(["blocks.1"], ["blocks.1.0.weight", "blocks.1.0.bias"], id="in-a-list"),
        pytest.param(["heads.colour"], ["heads.colour.weight"], id="in-a-dict"),
        pytest.param(
            ["stem.1"],
            ["stem.1.moving_mean", "stem.1.moving_variance", "stem.1.gamma", "stem.1.beta"],
            id="statistics-included",
        ),
        pytest.param(
            ["heads", "!*.bias", "stem.0.bias"],
            ["stem.0.bias", "heads.digits.weight", "heads.colour.weight"],
            id="in-network-order",
        ),
        pytest.param(["scale", "*cale", "scale"], ["scale"], id="each-once"),
    ],
)
def test_strings_select_by_name(patterns, expected):
    assert mg.select(Branchy(), *patterns).names == expected


@pytest.mark.parametrize(
    ("pattern", "layers"),
    [
        pytest.param("layers.1", [1], id="D1-one-layer"),
        pytest.param("layers.{3..6}", [3, 4, 5, 6], id="D7-middle"),
        pytest.param("layers.{10..11}", [10, 11], id="D7-last-two"),
        pytest.param("!layers.0", list(range(1, 12)), id="D7-all-but-the-first"),
    ],
)
@pytest.mark.parametrize(
    "make", [pytest.param(Layered, id="net"), pytest.param(with_loss, id="loss-cell")]
)
def test_d1_d7_layers_are_selected_as_whole_layers(make, pattern, layers):
    expected = [
        f"layers.{i}.{part}" for i in layers for part in ("0.weight", "0.bias", "1.gamma", "1.beta")
    ]
    assert mg.select(make(), pattern).names == expected


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("_backbone.layers.2.0.bias", id="path"),
        pytest.param("layers.2.0.bias", id="name"),
        pytest.param("_backbone.*.2.0.bias", id="glob-over-the-path"),
        pytest.param("re:layers\\.2\\..*bias", id="regex-over-the-name"),
    ],
)
def test_inside_a_loss_cell_names_and_paths_both_match(pattern):
    assert mg.select(with_loss(), pattern).names == ["layers.2.0.bias"]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("embedding", id="by-the-embedding"),
        pytest.param("embedding.table", id="by-its-name"),
        pytest.param("output.weight", id="by-its-other-path"),
        pytest.param("{output,middle}.w*t", id="by-glob-over-its-other-path"),
        pytest.param("re:output\\.weight", id="by-regex-over-its-other-path"),
        pytest.param(nn.Dense, id="by-the-class-of-the-other-owner"),
    ],
)
def test_e1_a_tied_weight_is_selected_by_either_path_and_once(pattern):
    net = Tied()
    assert mg.select(net, pattern).names.count("embedding.table") == 1
    assert net.output.weight in mg.select(net, pattern)


def test_e1_the_last_match_on_any_path_decides_about_a_tied_weight():
    net = Tied()
    assert mg.select(net, "embedding", "middle", "!output").names == [
        "middle.weight",
        "middle.bias",
    ]
    assert mg.select(net, "!output", "embedding.*").names[0] == "embedding.table"


def grown(random_: random.Random, depth: int) -> nn.Cell:
    cells = [
        nn.Dense(2, 2, has_bias=random_.random() < 0.5)
        if depth == 0 or random_.random() < 0.3
        else grown(random_, depth - 1)
        for _ in range(random_.randint(1, 4))
    ]
    if random_.random() < 0.5:
        return nn.SequentialCell(*cells)
    return Attributes({f"{random_.choice('ab')}{key}": cell for key, cell in enumerate(cells)})


def under(path: str, glob: str) -> bool:
    parts = path.split(".")
    return any(fnmatch.fnmatchcase(".".join(parts[: n + 1]), glob) for n in range(len(parts)))


@pytest.mark.parametrize("seed", range(12))
def test_random_patterns_over_a_random_network_select_what_fnmatch_selects(seed):
    random_ = random.Random(seed)
    net = grown(random_, 3)
    names = [parameter.name for parameter in net.get_parameters()]
    paths = [path for path, _ in net.cells_and_names() if path]
    globs = [
        random_.choice(
            [path, f"{path}.*", f"*{path[-1:]}", f"{path[:1]}*", "*.bias", "?", "*[0-1].*"]
        )
        for path in random_.choices(paths, k=4)
    ]
    signs = [random_.random() < 0.4 for _ in globs]
    expected = set(names) if signs[0] else set()
    for glob, negated in zip(globs, signs, strict=True):
        reached = {name for name in names if under(name, glob)}
        expected = expected - reached if negated else expected | reached
    patterns = [f"!{glob}" if sign else glob for glob, sign in zip(globs, signs, strict=True)]
    selected = mg.select(net, *patterns, missing_ok=True).names
    assert selected == [name for name in names if name in expected]


# --- classes, callables, parameters, selections, lists


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param(
            nn.BatchNorm2d,
            ["stem.1.moving_mean", "stem.1.moving_variance", "stem.1.gamma", "stem.1.beta"],
            id="a-class",
        ),
        pytest.param(Branchy, ["scale", "gate", "mix[0]"], id="only-what-the-network-itself-owns"),
    ],
)
def test_a_class_selects_what_its_instances_own_directly(pattern, expected):
    assert mg.select(Branchy(), pattern).names == expected


def test_a_class_selects_instances_of_subclasses_too():
    assert mg.select(Twice(), Narrow).names == ["outer.1.weight", "outer.1.bias"]
    assert len(mg.select(Twice(), nn.Dense)) == 4


def test_a_class_selects_through_wrappers_and_a_wrapper_what_is_its_own():
    net = Layered()
    mg.wrap(net, "layers.3", wrapper=Gained)
    assert mg.select(net, nn.LayerNorm).names == mg.select(Layered(), nn.LayerNorm).names
    assert by_identity(mg.select(net, Gained)) == [id(net.layers[3].gain)]


def test_a_callable_gets_each_name_and_parameter_once():
    net, seen = Tied(), []

    def small(name: str, parameter: Parameter) -> bool:
        seen.append((name, parameter))
        return parameter.ndim == 1

    assert mg.select(net, small).names == ["middle.bias", "output.bias"]
    assert [(name, id(p)) for name, p in seen] == [(p.name, id(p)) for p in net.get_parameters()]


def of_parameters(net: Branchy) -> tuple[list[object], list[str]]:
    return [net.heads["colour"].weight, net.scale], ["scale", "heads.colour.weight"]


def of_a_parameter_list(net: Branchy) -> tuple[list[object], list[str]]:
    return [net.stem[0].trainable_params()], ["stem.0.weight", "stem.0.bias"]


def of_a_parameter_tuple(net: Branchy) -> tuple[list[object], list[str]]:
    return [net.experts], ["gate", "mix[0]"]


def of_a_selection(net: Branchy) -> tuple[list[object], list[str]]:
    return [mg.select(net, "heads"), "!*.bias"], ["heads.digits.weight", "heads.colour.weight"]


def of_names(net: Branchy) -> tuple[list[object], list[str]]:
    return [mg.select(net, "*").names], [parameter.name for parameter in net.get_parameters()]


def of_nested_lists(net: Branchy) -> tuple[list[object], list[str]]:
    return [["heads", ("!heads.digits", [])], "gate"], ["gate", "heads.colour.weight"]


def of_a_list_that_begins_with_a_negation(net: Branchy) -> tuple[list[object], list[str]]:
    return [["!stem", "!blocks"], "!heads"], ["scale", "gate", "mix[0]"]


def of_a_class_narrowed_by_strings(net: Branchy) -> tuple[list[object], list[str]]:
    return [nn.Dense, "!*.bias", "!heads"], ["blocks.0.weight", "blocks.1.0.weight"]


def of_strings_widened_by_a_class(net: Branchy) -> tuple[list[object], list[str]]:
    return ["stem", "!*.bias", "!stem.1", nn.Conv2d], ["stem.0.weight", "stem.0.bias"]


@pytest.mark.parametrize(
    "made",
    [
        of_parameters,
        of_a_parameter_list,
        of_a_parameter_tuple,
        of_a_selection,
        of_names,
        of_nested_lists,
        of_a_list_that_begins_with_a_negation,
        of_a_class_narrowed_by_strings,
        of_strings_widened_by_a_class,
    ],
)
def test_a_list_of_patterns_of_any_kind_is_read_from_left_to_right(made):
    net = Branchy()
    patterns, expected = made(net)
    assert mg.select(net, *patterns).names == expected


@pytest.mark.parametrize(
    ("exclude", "expected"),
    [
        pytest.param("*.bias", ["heads.digits.weight", "heads.colour.weight"], id="a-string"),
        pytest.param(
            ["heads.digits", "!*.bias"],
            ["heads.digits.bias", "heads.colour.weight"],
            id="a-list-with-!",
        ),
        pytest.param(
            [lambda name, parameter: parameter.ndim == 1, "heads.colour"],
            ["heads.digits.weight"],
            id="a-callable",
        ),
        pytest.param(
            [], ["heads.digits.weight", "heads.digits.bias", "heads.colour.weight"], id="nothing"
        ),
        pytest.param(nn.Dense, [], id="a-class-that-leaves-nothing"),
        pytest.param(["*", "!stem"], [], id="a-list-with-!-for-what-is-not-chosen"),
    ],
)
def test_exclude_takes_away_by_patterns_of_any_kind(exclude, expected):
    assert mg.select(Branchy(), "heads", exclude=exclude).names == expected
