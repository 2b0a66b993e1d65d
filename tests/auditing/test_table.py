"""The table of an audit: what a reader sees, line by line."""

from __future__ import annotations

import math
import random
import string

import pytest

from msgrad.auditing import Audit
from msgrad.auditing._table import audit_table
from tests.auditing.audits import (
    DEAF,
    findings,
    healthy,
    held,
    leaks,
    statistic,
    trained,
    transformer,
)


def table(*rows):
    return audit_table(Audit(rows, (), 3))


def test_a_healthy_audit_is_a_summary_a_table_and_what_holds():
    assert audit_table(healthy()) == (
        "audit of 3 steps, 4 parameters: 2 trained, 2 held; no problem\n"
        "\n"
        "parameter     n  verdict  rate  decay  gradient  change\n"
        "conv1.weight  1  held     –     –      0.5       0\n"
        "conv1.bias    1  held     –     –      0.5       0\n"
        "conv2.weight  1  trained  0.1   0.01   0.5       0.02\n"
        "fc.bias       1  trained  0.1   0.01   0.5       0.02\n"
        "\n"
        "held: conv1: frozen by freeze('conv1')"
    )


def test_problems_come_first_the_worst_before_all_and_findings_before_parameters():
    rows = (trained("fc.weight", verdict="zero", reason="zero here"), leaks("conv1.weight", 0.1))
    lines = audit_table(Audit(rows, findings(), 1)).splitlines()
    assert lines[0] == "audit of 1 step, 2 parameters: 1 leaks, 1 zero; 3 problems"
    assert lines[2:7] == [
        "order: gradients come in another order than the optimizer's",
        "leaks: conv1.weight",
        "    frozen by freeze('conv1'), yet it moved 0.1 by weight decay 0.01",
        "zero: fc.weight",
        "    zero here",
    ]
    assert lines[-1] == "note: dropout: dropout is active in drop"


def test_problems_of_one_kind_are_told_once_by_the_largest_of_them():
    text = table(*(leaks(f"layers.{n}.w", 0.1 * (n + 1)) for n in range(3)))
    assert "leaks: layers.{0..2}.w (3 parameters)\n    most at layers.2.w: frozen by" in text
    assert text.count("weight decay") == 1


def test_equal_layers_share_a_line_with_the_smallest_and_the_largest_figure():
    lines = audit_table(transformer()).splitlines()
    row = next(line for line in lines if line.startswith("layers.{6..11}.attn.q.weight"))
    assert row.split() == [
        "layers.{6..11}.attn.q.weight", "6", "trained", "0.1", "0.01", "0.07–0.12", "0.006–0.011"
    ]  # fmt: skip
    assert f"unreached: head.weight\n    {DEAF}" in "\n".join(lines)
    assert lines[-1] == "held: layers.{0..5}: frozen by freeze('layers')"


FIGURES = [
    pytest.param({"gradient": None}, "–", "0.02", id="no-gradient"),
    pytest.param({"gradient": 0.0}, "0", "0.02", id="zero-gradient"),
    pytest.param({"gradient": math.nan}, "nan", "0.02", id="nan"),
    pytest.param({"gradient": math.inf}, "inf", "0.02", id="infinite"),
    pytest.param({"max_change": 0.0, "bits_changed": 2}, "0.5", "±0", id="signs-of-zeros"),
    pytest.param({"max_change": 1.234e-7}, "0.5", "1.2e-07", id="small"),
]


@pytest.mark.parametrize(("facts", "gradient", "change"), FIGURES)
def test_a_figure_is_short_and_says_none_zero_and_not_finite_apart(facts, gradient, change):
    row = table(trained("w", **facts)).splitlines()[3]
    assert row.split()[5:] == [gradient, change]


def test_layers_with_another_rate_or_verdict_are_told_apart():
    rows = [trained("a.0.w"), trained("a.1.w", lr=0.2), trained("a.2.w", weight_decay=0.0)]
    names = [line.split()[0] for line in table(*rows, held("a.3.w")).splitlines()[3:7]]
    assert names == ["a.0.w", "a.1.w", "a.2.w", "a.3.w"]


def words(count: int) -> list[str]:
    """Names without a number in them, so that nothing folds."""
    draw = random.Random(0)
    letters = string.ascii_lowercase
    return [".".join("".join(draw.choices(letters, k=6)) for _ in range(3)) for _ in range(count)]


def assert_readable(text: str) -> None:
    assert max(map(len, text.splitlines())) <= 100
    assert len(text.splitlines()) < 100


TEN_THOUSAND = [
    pytest.param([f"layers.{n}.{p}.w{m}" for n in range(100) for p in "ab" for m in range(50)],
                 id="equal-layers"),
    pytest.param(words(10_000), id="no-two-alike"),
    pytest.param([f"block{n}." + "x" * 150 for n in range(100)] + words(9_900), id="long-names"),
]  # fmt: skip


@pytest.mark.parametrize("names", TEN_THOUSAND)
def test_ten_thousand_parameters_fit_a_hundred_columns_and_a_hundred_lines(names):
    kinds = [trained, held, statistic, lambda name: leaks(name, 0.5)]
    rows = [kinds[number % 4](name) for number, name in enumerate(names)]
    text = table(*rows)
    assert_readable(text)
    counted = [line.split() for line in text.splitlines() if " leaks " in line]
    assert sum(int(line[line.index("leaks") - 1]) for line in counted) == 2_500


def test_a_table_that_cannot_fold_says_how_much_it_leaves_out():
    rows = [trained(name, lr=0.001 * n, reason=name) for n, name in enumerate(words(100))]
    assert "… and 40 more parameters; to_json and to_html have them all" in table(*rows)


def test_a_hundred_kinds_of_problems_are_cut_and_counted():
    rows = [trained(name, verdict="zero", reason=name.replace(".", " ")) for name in words(100)]
    assert "… and 80 more problems of other kinds" in table(*rows)


def test_an_audit_of_nothing_says_so():
    assert table() == "audit of 3 steps, 0 parameters: no parameters; no problem"
