"""The page of an audit: whole in one file, every row in it, and no text taken for markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from msgrad.auditing import Audit
from tests.auditing.audits import findings, healthy, held, leaks, trained

EMPTY = {"meta", "input", "path", "use", "rect", "br", "link", "img"}


class Page(HTMLParser):
    """Collects tags, attributes and the texts of table rows; raises where a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.seen, self.rows, self.texts = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and self.open[-1] == "td":
            self.rows[-1][-1] += data


def page(audit, path):
    audit.to_html(path)
    text = path.read_text(encoding="utf-8")
    return Page(text), text


def test_the_page_has_every_row_with_what_was_found(tmp_path):
    rows = (held("conv1.weight"), trained("fc.weight", gradient=0.123456, state_changed=False))
    found, _ = page(Audit(rows, (), 3), tmp_path / "new" / "audit.html")
    assert found.rows[1:] == [
        ["conv1.weight", "(8, 8)", "float32", "held", "frozen by freeze('conv1')",
         "freeze('conv1')", "False", "no", "–", "–", "0.5", "0", "0", "0", "–"],
        ["fc.weight", "(8, 8)", "float32", "trained", "it moved 0.02", "", "True", "yes", "0.1",
         "0.01", "0.1235", "0.02", "0.1", "64", "no"],
    ]  # fmt: skip


def test_a_row_is_marked_as_held_or_as_a_problem(tmp_path):
    rows = (held("a.w"), trained("b.w"), leaks("c.w", 0.1))
    found, _ = page(Audit(rows, (), 3), tmp_path / "audit.html")
    assert [a.get("class") for tag, a in found.seen if tag == "tr"][1:] == [
        "held", "trained", "wrong"
    ]  # fmt: skip


def test_problems_stand_before_what_is_worth_knowing_and_the_picture(tmp_path):
    audit = Audit((leaks("conv1.weight", 0.1),), findings(), 3)
    found, text = page(audit, tmp_path / "audit.html")
    places = [text.index(word) for word in ("Problems: 2", "Worth knowing", "<svg", "<table")]
    assert places == sorted(places)
    assert "leaks: conv1.weight: frozen by freeze('conv1'), yet it moved 0.1 by" in "".join(
        found.texts
    )


def test_a_healthy_page_says_that_nothing_was_found(tmp_path):
    found, text = page(healthy(), tmp_path / "audit.html")
    assert "No problem was found." in found.texts
    assert "Worth knowing" not in text


def test_the_page_asks_for_no_other_file(tmp_path):
    found, text = page(healthy(), tmp_path / "audit.html")
    wanted = [a for _, a in found.seen if a.keys() & {"src", "href", "data"}]
    assert [a for a in wanted if not str(a.get("href", "")).startswith("#")] == []
    assert re.findall(r"@import|url\((?!#)", text) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "audit.html"]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>.w", 'a"b&c.w'])
def test_a_name_is_never_taken_for_markup(name, tmp_path):
    found, text = page(Audit((leaks(name, 0.1),), (), 3), tmp_path / "audit.html")
    assert "<script>alert" not in text
    assert found.rows[1][0] == name
