"""Patterns over names, against a matcher that tries every spelling of a pattern on every name."""

from __future__ import annotations

import fnmatch
import itertools
import random
import re
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import msgrad as mg
from msgrad.network import Names, nearest, parse, select_names

LAYERS = [
    f"layers.{i}.{part}.{kind}"
    for i in range(12)
    for part in ("fc", "norm")
    for kind in ("weight", "bias")
]
NAMES = [
    "conv1.weight",
    "layer1.0.conv1.weight",
    "input_layernorm.gamma",
    "norm.gamma",
    "q_proj.w",
    "v_proj.w",
]


# A busy machine is no failure.
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- the oracle: it never reads a brace, it is told what each piece of a pattern may be


class Piece(NamedTuple):
    """A piece of a pattern as it is written, and all the texts that it stands for."""

    text: str
    spellings: list[str]


def joined(pieces: list[Piece]) -> Piece:
    products = itertools.product(*(piece.spellings for piece in pieces))
    return Piece("".join(piece.text for piece in pieces), ["".join(p) for p in products])


def braced(pieces: list[Piece]) -> Piece:
    spellings = itertools.chain.from_iterable(piece.spellings for piece in pieces)
    return Piece("{" + ",".join(piece.text for piece in pieces) + "}", list(spellings))


def numbers(first: int, last: int, width: int) -> Piece:
    inside = range(min(first, last), max(first, last) + 1)
    text = f"{first:0{width}d}..{last:0{width}d}"
    return Piece(text, [f"{n:0{width}d}" for n in inside])


def ancestors(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts) + 1)]


def reached(test: Callable[[str], object], names: list[str]) -> set[str]:
    return {name for name in names if any(test(path) for path in ancestors(name))}


def chosen_by_hand(steps: list[tuple[bool, set[str]]], names: list[str]) -> list[str]:
    """Decide each name by itself: by the last pattern that reaches it, else by the first `!`."""
    kept = []
    for name in names:
        verdicts = [not negated for negated, found in steps if name in found]
        if verdicts[-1] if verdicts else steps[0][0]:
            kept.append(name)
    return kept


def every_pattern_acts(steps: list[tuple[bool, set[str]]], names: list[str]) -> bool:
    for position, (negated, found) in enumerate(steps):
        before = chosen_by_hand(steps[:position], names) if position else names
        if not (found & set(before) if negated else found):
            return False
    return True


segments = st.sampled_from(["a", "b", "ab", "A", "0", "1", "2", "10", "01", "a-b", "ä"])
some_names = st.lists(
    st.lists(segments, min_size=1, max_size=4).map(".".join), min_size=1, max_size=25, unique=True
)
plain = st.sampled_from(
    ["a", "b", "ab", "0", "1", "10", ".", "a.", ".0", "*", "?", "[ab]", "[!a]", "*."]
)
leaf = plain.map(lambda text: Piece(text, [text]))
span = st.builds(numbers, st.integers(0, 11), st.integers(0, 11), st.sampled_from([0, 2]))
inner = st.one_of(leaf, span)
group = st.lists(inner, min_size=1, max_size=3).map(braced)
nested = st.lists(
    st.one_of(inner, st.lists(st.one_of(leaf, group), max_size=2).map(joined)),
    min_size=2,
    max_size=3,
)
globs = (
    st.lists(st.one_of(leaf, group, nested.map(braced)), min_size=1, max_size=3)
    .map(joined)
    .filter(lambda piece: not any(".." in spelling for spelling in piece.spellings))
)
regexes = st.sampled_from([r"a", r".*b", r"[ab]\.\d+", r"\d+", r"a|b\.0", r"(?i)AB?", r".*\.(0|1)"])


def glob_step(names: list[str], piece: Piece) -> tuple[str, set[str]]:
    test = lambda path: any(fnmatch.fnmatchcase(path, spelling) for spelling in piece.spellings)  # noqa: E731
    return piece.text, reached(test, names)


def regex_step(names: list[str], pattern: str) -> tuple[str, set[str]]:
    return f"re:{pattern}", reached(lambda path: re.fullmatch(pattern, path), names)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[str], list[str], list[tuple[bool, set[str]]]]:
    names = draw(some_names)
    existing = st.sampled_from(sorted({path for name in names for path in ancestors(name)}))
    patterns, steps = [], []
    for _ in range(draw(st.integers(1, 4))):
        text, found = draw(
            st.one_of(
                globs.map(lambda piece: glob_step(names, piece)),
                existing.map(lambda path: glob_step(names, Piece(path, [path]))),
                regexes.map(lambda pattern: regex_step(names, pattern)),
            )
        )
        negated = draw(st.booleans())
        patterns.append("!" + text if negated else text)
        steps.append((negated, found))
    return names, patterns, steps


@relaxed
@given(cases())
def test_a_list_of_patterns_chooses_what_trying_every_spelling_chooses(case):
    names, patterns, steps = case
    assert select_names(names, *patterns, missing_ok=True) == chosen_by_hand(steps, names)


@relaxed
@given(cases())
def test_a_pattern_without_effect_raises_exactly_where_trying_every_spelling_finds_none(case):
    names, patterns, steps = case
    if every_pattern_acts(steps, names):
        assert select_names(names, *patterns) == chosen_by_hand(steps, names)
    else:
        with pytest.raises(mg.NoMatchError, match=r"matched none of|takes away none of") as caught:
            select_names(names, *patterns)
        assert caught.value.pattern in patterns


# --- what each kind of pattern means


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("layers.1", [1], id="D1-a-literal-takes-whole-segments"),
        pytest.param("layers.{0..3}", [0, 1, 2, 3], id="range-with-both-ends"),
        pytest.param("layers.{3..0}", [0, 1, 2, 3], id="range-backwards"),
        pytest.param("layers.{9..10}", [9, 10], id="range-across-lengths"),
        pytest.param("layers.{0,11}", [0, 11], id="alternatives"),
        pytest.param("layers.{0..1,{4,6..7}}", [0, 1, 4, 6, 7], id="ranges-inside-alternatives"),
        pytest.param("layers.1*", [1, 10, 11], id="a-star-is-asked-for"),
        pytest.param("layers.?", list(range(10)), id="one-character"),
        pytest.param("layers.[0-2]", [0, 1, 2], id="one-character-of-a-set"),
        pytest.param("layers.1[!1]", [10], id="one-character-not-of-a-set"),
        pytest.param(
            "re:layers\\.\\d", list(range(10)), id="regex-matches-the-whole-name-of-a-cell"
        ),
    ],
)
def test_a_pattern_takes_the_layers_it_names(pattern, expected):
    assert select_names(LAYERS, pattern) == [n for n in LAYERS if int(n.split(".")[1]) in expected]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        pytest.param(["layers.{3..6}"], [3, 4, 5, 6], id="three-to-six-in-the-middle"),
        pytest.param(["layers.{10..11}"], [10, 11], id="last-two"),
        pytest.param(["*", "!layers.0"], list(range(1, 12)), id="all-but-the-first"),
        pytest.param(["!layers.0"], list(range(1, 12)), id="all-but-the-first-from-everything"),
        pytest.param(["!layers.{0..9}", "layers.4"], [4, 10, 11], id="taken-away-and-taken-back"),
        pytest.param(["!re:layers\\.1?\\d", "layers.3"], [3], id="regex-taken-away"),
    ],
)
def test_d7_layers_are_chosen_by_ranges_and_by_what_they_are_not(patterns, expected):
    assert select_names(LAYERS, *patterns) == [
        n for n in LAYERS if int(n.split(".")[1]) in expected
    ]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("norm", ["norm.gamma"], id="norm-is-not-input_layernorm"),
        pytest.param("conv1", ["conv1.weight"], id="conv1-is-not-layer1.0.conv1"),
        pytest.param("*.conv1", ["layer1.0.conv1.weight"], id="a-star-crosses-dots"),
        pytest.param(
            "*conv1", ["conv1.weight", "layer1.0.conv1.weight"], id="a-star-is-also-nothing"
        ),
        pytest.param("{q,v}_proj", ["q_proj.w", "v_proj.w"], id="alternatives"),
        pytest.param("{q,v}_proj.{w,b}", ["q_proj.w", "v_proj.w"], id="two-pairs-of-braces"),
        pytest.param("{q}_proj", ["q_proj.w"], id="a-single-alternative"),
        pytest.param("{q,}_proj", ["q_proj.w"], id="an-empty-alternative"),
        pytest.param(
            "*.gamma", ["input_layernorm.gamma", "norm.gamma"], id="anchored-at-both-ends"
        ),
    ],
)
def test_d2_a_name_is_matched_as_a_whole(pattern, expected):
    assert select_names(NAMES, pattern) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param("b{00..02}", ["b00", "b01", "b02"], id="padded"),
        pytest.param("b{0..2}", ["b0", "b1", "b2"], id="not-padded"),
        pytest.param("b{08..11}", ["b08", "b09", "b10", "b11"], id="padded-across-lengths"),
        pytest.param("b{2..00}", ["b02", "b01", "b00"], id="padded-at-one-end-backwards"),
        pytest.param("b{-1..1}", ["b-1", "b0", "b1"], id="negative"),
        pytest.param("b{3..3}", ["b3"], id="one-number"),
    ],
)
def test_a_range_is_written_out_with_its_zeros(pattern, expected):
    wrong = ["b", "b1_", "b3_", "b000", "b001", "b7", "b12", "b-2", "b+1", "b03"]
    assert select_names(wrong + expected, pattern) == expected


@pytest.mark.parametrize(
    ("name", "lookalike"),
    [
        pytest.param("experts[0].w", "experts0.w", id="brackets"),
        pytest.param("a*b.w", "axb.w", id="star"),
        pytest.param("who?.w", "whom.w", id="question-mark"),
        pytest.param("set{a,b}.w", "seta.w", id="braces"),
        pytest.param("open{.w", "open.w", id="one-brace"),
        pytest.param("größe.w", "grosse.w", id="not-ascii"),
        pytest.param("a b/c:d.w", "a b/c.w", id="blank-slash-colon"),
        pytest.param("$x^+(1).w", "x1.w", id="signs-of-regular-expressions"),
    ],
)
def test_an_existing_name_stands_for_itself_whatever_it_is_made_of(name, lookalike):
    names = [lookalike, name]
    assert select_names(names, name) == [name]
    assert select_names(names, f"!{name}") == [lookalike]
    assert select_names(names, "re:" + re.escape(name)) == [name]


def test_letters_of_another_case_do_not_match():
    assert select_names(["fc.w", "FC.w"], "F*") == ["FC.w"]


# --- errors


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        pytest.param(
            "re:fc(1",
            r"'re:fc\(1' is no regular expression: .* at position 5;",
            id="regex-parenthesis",
        ),
        pytest.param(
            "!re:*",
            r"'!re:\*' is no regular expression: .* at position 4;",
            id="regex-star-behind-!",
        ),
        pytest.param(
            "re:a{9999999999999999999}",
            r"is no regular expression: .* at position 3;",
            id="regex-overflow",
        ),
        pytest.param(
            "layers.{0..5", r"unbalanced '\{' at position 7; close", id="brace-not-closed"
        ),
        pytest.param(
            "layers.{0,{1,2}", r"unbalanced '\{' at position 7; close", id="outer-brace-not-closed"
        ),
        pytest.param("layers.0}", r"unbalanced '\}' at position 8; close", id="brace-not-opened"),
        pytest.param("{a,b}}.c", r"unbalanced '\}' at position 5; close", id="one-brace-too-many"),
        pytest.param("layers.{}", r"in braces at position 8; write '\{q,v\}'", id="empty-braces"),
        pytest.param("layers.{0..}", r"in braces at position 8; write", id="range-without-end"),
        pytest.param("layers.{a..c}", r"in braces at position 8; write", id="range-of-letters"),
        pytest.param("layers.{0..9..2}", r"in braces at position 8; write", id="range-with-a-step"),
        pytest.param(
            "a.{0..99999999999}",
            r"range of 100000000000 numbers at position 3; write '\*'",
            id="range-too-long",
        ),
        pytest.param("", r"pattern '' has no name at position 0; give", id="empty"),
        pytest.param("!", r"pattern '!' has no name at position 1; give", id="nothing-taken-away"),
        pytest.param("re:", r"pattern 're:' has no name at position 0; give", id="empty-regex"),
        pytest.param(
            "!!a", r"pattern '!!a' has no name at position 1; give", id="taken-away-twice"
        ),
    ],
)
def test_d4_a_malformed_pattern_raises_at_once_with_the_position(pattern, message):
    with pytest.raises(mg.ArgumentError, match=message):
        select_names(["a.b"], "no.such.name", pattern, missing_ok=True)


def test_a_malformed_pattern_is_reported_before_one_that_matches_nothing():
    with pytest.raises(mg.ArgumentError, match="at position 3"):
        select_names(["a.b"], "no.such.name", "re:(")


def test_a_pattern_that_is_no_string_is_refused():
    with pytest.raises(mg.ArgumentTypeError, match=r"pattern 3 is no string; give a name"):
        parse(3)  # pyright: ignore[reportArgumentType]


def test_no_pattern_at_all_is_refused():
    with pytest.raises(mg.ArgumentError, match=r"patterns \(\) are empty; give at least one"):
        select_names(["a.b"])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        pytest.param(
            "norm.gama", r"none of 6 names; did you mean 'norm\.gamma'\?$", id="a-letter-lost"
        ),
        pytest.param("Norm", r"did you mean 'norm'\?$", id="another-case"),
        pytest.param("layernorm", r"did you mean 'input_layernorm' or ", id="a-part-of-it"),
        pytest.param("proj", r"did you mean 'q_proj' or ", id="the-end-of-it"),
        pytest.param(
            "0.conv1", r"did you mean 'layer1\.0\.conv1'\?$", id="without-the-path-in-front"
        ),
        pytest.param("conv1*.wieght", r"did you mean 'conv1\.weight'", id="behind-a-star"),
        pytest.param(
            "*.wieght",
            r"did you mean 'layer1\.0\.conv1\.weight'|'conv1\.weight'",
            id="star-and-typo",
        ),
        pytest.param("con1*", r"did you mean 'conv1'\?$", id="in-front-of-a-star"),
        pytest.param("{k,m}_proj", r"did you mean 'q_proj' or 'v_proj'\?$", id="in-braces"),
        pytest.param("re:norm\\.gama", r"did you mean 'norm\.gamma'\?$", id="in-a-regex"),
        pytest.param(
            "!norm.gama",
            r"'!norm\.gama' matched none .* did you mean 'norm\.gamma'\?$",
            id="behind-!",
        ),
        pytest.param(
            "zzzzz",
            r"none of 6 names; the first names are 'conv1\.weight', 'layer1\.0\.conv1\.weight'",
            id="like-nothing",
        ),
    ],
)
def test_d3_a_misspelt_pattern_names_the_nearest_names(pattern, message):
    with pytest.raises(mg.NoMatchError, match=message) as caught:
        select_names(NAMES, "conv1", pattern, "q_proj")
    assert caught.value.pattern == pattern


def test_the_error_carries_the_nearest_names():
    with pytest.raises(mg.NoMatchError, match="did you mean 'norm'") as caught:
        select_names(NAMES, "nrom")
    assert caught.value.nearest == ["norm"]


def test_without_any_name_the_error_says_so():
    with pytest.raises(
        mg.NoMatchError, match=r"none of 0 names; there are no names to choose from"
    ):
        select_names([], "a")


def test_a_pattern_that_takes_nothing_away_is_refused_with_the_remedy():
    with pytest.raises(
        mg.NoMatchError, match=r"'!q_proj' takes away none of the 1 chosen before it; put it behind"
    ):
        select_names(NAMES, "conv1", "!q_proj", "q_proj")


def test_what_is_missing_may_be_allowed():
    assert select_names(NAMES, "conv1", "nothing", "!q_proj", "!nix", missing_ok=True) == [
        "conv1.weight"
    ]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        pytest.param("fc", "Encoder.Blocks.FC", id="without-the-path-in-another-case"),
        pytest.param("tern", "decoder.pattern_memory.scale", id="a-short-part-of-a-long-name"),
        pytest.param("sclae", "decoder.pattern_memory.scale", id="the-last-segment-misspelt"),
        pytest.param("x", None, id="nothing-alike"),
    ],
)
def test_a_name_is_near_in_more_ways_than_by_its_letters(word, expected):
    names = ["fcx", "Encoder.Blocks.FC", "decoder.pattern_memory.scale"]
    assert nearest(word, names) == ([expected] if expected else [])


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([["a"], ["a.b"], ["a.b.c"], ["d"]], id="cells-before-what-is-inside"),
        pytest.param([["a.b.c"], ["a.b"], ["a"], ["d"]], id="cells-behind-what-is-inside"),
        pytest.param([["a.b.c", "d"], ["a.b.c"], ["d", "a"]], id="names-of-several-things"),
    ],
)
def test_every_path_is_there_once_each_cell_before_what_is_inside(items):
    assert list(Names(items).paths()) == ["a", "a.b", "a.b.c", "d"]


def test_equally_near_names_come_in_the_order_of_the_network():
    names = [f"layers.{i}.weight" for i in range(9)]
    assert nearest("layers.x.weight", names) == [
        "layers.0.weight",
        "layers.1.weight",
        "layers.2.weight",
    ]


# --- size and purity


def work(names: list[str], patterns: list[str]) -> int:
    """Return how many Python and C functions are called to match the patterns."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        select_names(names, *patterns)
    finally:
        sys.setprofile(None)
    return calls


def many(count: int) -> list[str]:
    random_ = random.Random(count)
    return [f"layers.{i}.{random_.choice(['attn', 'mlp'])}.fc{i % 7}.weight" for i in range(count)]


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param("layers.{0..5}", id="literals"),
        pytest.param("*.fc1.*", id="glob"),
        pytest.param("re:layers\\.\\d+\\.mlp\\..*", id="regex"),
        pytest.param("!*.attn", id="taken-away"),
    ],
)
def test_ten_times_the_names_cost_at_most_about_ten_times_the_work(pattern):
    small, large = (
        work(many(count), [pattern] * 10 if pattern[0] != "!" else [pattern])
        for count in (500, 5000)
    )
    assert large < 11 * small


def test_a_literal_costs_no_more_among_ten_times_the_names():
    extra = [
        work(many(count), ["layers.3"] * 20) - work(many(count), ["layers.3"])
        for count in (500, 5000)
    ]
    assert extra[1] < 1.5 * extra[0]


def test_names_and_errors_load_neither_mindspore_nor_numpy():
    code = (
        "import sys, types\n"
        "for name, folder in (('msgrad', ''), ('msgrad.network', '/network')):\n"
        "    module = sys.modules[name] = types.ModuleType(name)\n"
        "    module.__path__ = [sys.argv[1] + folder]\n"
        "import msgrad.network._names; print(sorted({'mindspore', 'numpy'} & set(sys.modules)))"
    )
    folder = mg.__path__[0]
    ran = subprocess.run(
        [sys.executable, "-c", code, folder], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
