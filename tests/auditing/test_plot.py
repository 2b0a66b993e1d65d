"""The picture of an audit: readable, safe for all kinds of colour vision, the same at each run."""

from __future__ import annotations

import math
import sys
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.image import imread

import msgrad as mg
from msgrad.auditing import Audit
from msgrad.auditing._plot import draw_audit
from tests.auditing.audits import healthy, held, leaks, trained, transformer

# The eight colours of Okabe and Ito, and grey, which differ in lightness too.
SAFE = {
    "#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7",
    "#595959", "#d9d9d9", "#bbbbbb", "#ffffff",
}  # fmt: skip


def audit(*rows):
    return Audit(rows, (), 3)


def resnet() -> Audit:
    parts = ["conv1.weight", "bn1.gamma", "bn1.beta", "conv2.weight", "bn2.gamma", "bn2.beta"]
    names = [f"layer{s}.{b}.{part}" for s in range(1, 5) for b in range(2) for part in parts]
    kinds = {"1": held, "2": lambda name: leaks(name, 0.001)}
    return audit(*(kinds.get(name[5], trained)(name) for name in names), trained("fc.weight"))


AUDITS = [
    pytest.param(healthy(), id="demo"),
    pytest.param(transformer(), id="transformer"),
    pytest.param(resnet(), id="resnet"),
    pytest.param(audit(*(trained(f"{'x' * 90}.{n}.w") for n in range(500))), id="long-names"),
    pytest.param(audit(trained("w", gradient=1e-300, max_change=1e300)), id="extremes"),
    pytest.param(audit(), id="nothing"),
]


def texts_of(figure):
    """The texts that are seen, with the boxes that they take, and the box of the picture."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [figure._suptitle, *figure.legends[0].get_texts()]
    for axes in figure.axes:
        texts += [axes.title, *axes.get_yticklabels(), *axes.texts]
        # matplotlib makes labels for ticks outside of the axis, and does not draw them
        low, high = axes.get_xlim()
        ticks = zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        texts += [label for tick, label in ticks if low <= tick <= high]
        texts += [label for child in axes.child_axes for label in child.get_yticklabels()]
    renderer = canvas.get_renderer()
    seen = [text for text in texts if text.get_visible() and text.get_text()]
    return [(t.get_text(), t.get_window_extent(renderer)) for t in seen], figure.bbox


@pytest.mark.parametrize("found", AUDITS)
def test_no_text_of_the_picture_lies_on_another_or_outside(found):
    texts, picture = texts_of(draw_audit(found))
    # with some pixels between them
    over = [(a[0], b[0]) for a, b in combinations(texts, 2) if a[1].padded(3).overlaps(b[1])]
    out = [t for t, b in texts if b.x0 < 0 or b.y0 < 0 or b.x1 > picture.x1 or b.y1 > picture.y1]
    assert (over, out) == ([], [])


@pytest.mark.parametrize("found", AUDITS)
def test_all_colours_are_told_apart_by_every_kind_of_colour_vision(found):
    figure = draw_audit(found)
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    assert {to_hex(line.get_color()) for line in lines} <= SAFE


def bands(axes):
    return sorted(patch.get_y() + 0.5 for patch in axes.patches)


def test_held_layers_lie_on_a_band_and_are_named_so_in_both_panels():
    found = audit(held("a.w"), trained("b.w"), held("c.w"), leaks("d.w", 0.1))
    left, right = draw_audit(found).axes
    assert bands(left) == bands(right) == [0.0, 2.0]
    states = [text.get_text() for text in right.child_axes[0].get_yticklabels()]
    assert states == ["held", "trained", "held", "leaks"]


def marks(axes):
    """Where the marks of a panel stand, and whether they are hollow."""
    drawn = [line for line in axes.get_lines() if len(line.get_xdata())]
    return {
        line.get_ydata()[0]: (line.get_xdata()[0], to_hex(line.get_markerfacecolor()) == "#ffffff")
        for line in drawn
    }


def test_a_mark_stands_at_its_value_and_a_zero_hollow_at_the_end_of_the_axis():
    found = audit(held("a.w", gradient=0.25), trained("b.w", gradient=None, max_change=0.5))
    left, right = draw_audit(found).axes
    assert marks(left) == {0: (0.25, False)}
    assert marks(right) == {0: (right.get_xlim()[0], True), 1: (0.5, False)}
    assert right.get_xlim()[0] < 0.5


def test_what_is_not_finite_is_written_and_not_drawn():
    left, right = draw_audit(audit(trained("a.w", gradient=math.nan, max_change=math.inf))).axes
    assert [text.get_text().strip() for text in (*left.texts, *right.texts)] == ["nan", "inf"]
    assert marks(left) == marks(right) == {}


def test_a_png_is_a_picture_and_its_folder_is_made(tmp_path):
    healthy().plot(tmp_path / "deep" / "audit.png")
    assert imread(tmp_path / "deep" / "audit.png").shape[1] > 1000


def test_an_svg_is_the_same_at_each_run(tmp_path):
    texts = []
    for name in ("a.svg", "b.SVG"):
        healthy().plot(tmp_path / name)
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
    assert texts[0].startswith(b"<?xml")


@pytest.mark.parametrize("path", ["audit.pdf", "audit"])
def test_another_ending_is_refused_before_anything_is_written(path, tmp_path):
    with pytest.raises(mg.ArgumentError, match=rf"path '{path}' is no \.png and no \.svg; give"):
        healthy().plot(path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def _no_matplotlib(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.usefixtures("_no_matplotlib")
@pytest.mark.parametrize("write", ["plot", "to_html"])
def test_a_missing_matplotlib_is_answered_by_the_install_line(write, tmp_path):
    message = r"^a plot needs matplotlib, which is not installed; pip install 'msgrad\[tools\]'$"
    with pytest.raises(mg.MissingPackageError, match=message) as error:
        getattr(healthy(), write)(tmp_path / "audit.svg")
    assert isinstance(error.value, ImportError)
    assert list(tmp_path.iterdir()) == []
