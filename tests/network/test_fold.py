"""Folded names: read by the matcher, they are the names that they were made of."""

from __future__ import annotations

import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msgrad.network import fold, fold_cells, select_names

TRANSFORMER = [f"layers.{n}.{part}.weight" for n in range(12) for part in ("attn", "mlp")]
BLOCKS = [f"layer{a}.{b}.conv{c}.weight" for a in (1, 2) for b in (0, 1, 2) for c in (1, 2)]

FOLDED = [
    pytest.param(["fc.weight"], ["fc.weight"], id="no-number"),
    pytest.param(["conv1.weight"], ["conv1.weight"], id="one-number"),
    pytest.param(TRANSFORMER, ["layers.{0..11}.attn.weight", "layers.{0..11}.mlp.weight"], id="12"),
    pytest.param(BLOCKS, ["layer{1,2}.{0..2}.conv{1,2}.weight"], id="three-places"),
    pytest.param([*BLOCKS, "layer3.0.conv1.weight"], [
        "layer{1,2}.{0..2}.conv{1,2}.weight", "layer3.0.conv1.weight"], id="a-block-too-many"),
    pytest.param(["a.0", "a.1", "a.2", "a.4", "a.7", "a.8"], ["a.{0..2,4,7,8}"], id="gaps"),
    pytest.param(["a.10", "a.2", "a.11", "a.9"], ["a.{2,9..11}"], id="by-value-not-as-text"),
    pytest.param(["a.08", "a.09", "a.10"], ["a.{08..10}"], id="padded"),
    pytest.param(["a.9", "a.09"], ["a.{9,09}"], id="padded-beside-plain"),
    pytest.param(["a.098", "a.099", "a.100"], ["a.{098..100}"], id="padded-over-the-hundred"),
    pytest.param(
        [f"a.{n:02d}" for n in range(9, 101)], ["a.{09..99,100}"], id="padded-and-then-too-wide"
    ),
    pytest.param(["a.98", "a.99", "a.100"], ["a.{98..100}"], id="plain-over-the-hundred"),
    pytest.param(["a.0.x", "b.0.x"], ["a.0.x", "b.0.x"], id="other-words"),
    pytest.param(["w[0]", "w[1]"], ["w[0]", "w[1]"], id="signs-of-a-pattern"),
    pytest.param([], [], id="none"),
]  # fmt: skip


@pytest.mark.parametrize(("names", "patterns"), FOLDED)
def test_names_that_differ_in_numbers_become_one_pattern(names, patterns):
    assert list(fold(names)) == patterns


relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
segments = st.text(string.ascii_lowercase, max_size=2).flatmap(
    lambda word: st.integers(0, 12).map(lambda n: f"{word}{n}")
)
padded = st.integers(0, 110).map(lambda n: f"{n:02d}")
dotted = st.lists(segments | padded | st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)
many = st.lists(dotted, unique=True, max_size=40)


def chosen_by(pattern: str, names: list[str]) -> list[str]:
    """What the matcher takes by a pattern, names inside a matched name left aside."""
    found = select_names(names, pattern)
    depth = min(name.count(".") for name in found)
    return [name for name in found if name.count(".") == depth]


@relaxed
@given(many)
def test_a_pattern_selects_the_names_that_it_stands_for_and_no_other(names):
    folded = fold(names)
    assert {pattern: chosen_by(pattern, names) for pattern in folded} == folded


@relaxed
@given(many)
def test_every_name_is_in_one_pattern(names):
    assert sorted(name for found in fold(names).values() for name in found) == sorted(names)


def test_a_cell_of_one_kind_becomes_its_path_and_a_mixed_one_is_told_apart():
    kinds = {"body.0.w": 1, "body.0.b": 1, "body.1.w": 1, "body.1.b": 2, "head.w": 1}
    assert fold_cells(kinds) == {
        "body.0": ["body.0.w", "body.0.b"],
        "body.1.w": ["body.1.w"],
        "body.1.b": ["body.1.b"],
        "head": ["head.w"],
    }


def test_cells_alike_are_folded_and_those_of_another_kind_are_not():
    kinds = {f"layers.{n}.{p}": n < 6 for n in range(12) for p in ("w", "b")}
    assert list(fold_cells(kinds)) == ["layers.{0..5}", "layers.{6..11}"]
    assert list(fold_cells(dict.fromkeys(kinds, 1))) == ["layers"]


@relaxed
@given(st.dictionaries(dotted, st.booleans(), max_size=40))
def test_a_pattern_of_cells_stands_for_each_name_once_and_for_names_of_one_kind(kinds):
    folded = fold_cells(kinds)
    assert sorted(name for found in folded.values() for name in found) == sorted(kinds)
    assert [p for p, found in folded.items() if len({kinds[n] for n in found}) > 1] == []
