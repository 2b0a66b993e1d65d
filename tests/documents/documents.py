"""Documents whose programs are run: each block of Python goes on from the one before it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# a program, and right behind it what it prints; one without output is shown, not run
BLOCK = re.compile(
    r"^```python\n((?:(?!```)[^\n]*\n)+)```\n```text\n(.*?)^```\n", re.DOTALL | re.MULTILINE
)
CUT = "--- next block"


def blocks_of(document: str) -> list[tuple[str, str]]:
    """Return the programs of a document and what it says that they print."""
    return BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))


def printed_by(document: str, folder: Path) -> list[str]:
    """Run all programs of a document as one, in a folder, and return what each prints."""
    # a file, since a graph reads the source of what it compiles
    program = f"\nprint({CUT!r})\n".join(code for code, _ in blocks_of(document))
    (folder / "program.py").write_text(program, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [part.lstrip("\n") for part in done.stdout.split(CUT)]


def parts(text: str, language: str) -> list[str]:
    """Return what stands in the fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """Return a text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(text: str) -> list[tuple[int, str]]:
    """Return the level of each heading, and the prose up to the next, the heading included."""
    found = re.split(r"^(#+ )", prose(text), flags=re.MULTILINE)
    return [(len(mark) - 1, rest) for mark, rest in zip(found[1::2], found[2::2], strict=True)]


def tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a text: rows of cells, the row under the header too."""
    found = re.findall(r"(?:^\|.*\|\n)+", prose(text), re.MULTILINE)
    return [[row.strip("|").split("|") for row in table.splitlines()] for table in found]


def said(text: str) -> tuple[list[str], list[str]]:
    """Return what a translation leaves alone: the code and the numbers, sorted."""
    code = re.findall(r"`([^`\n]+)`", text)
    rest = re.sub(r"`[^`\n]+`|\]\(.+?\)", "", text)
    return sorted(code), sorted(re.findall(r"\d+(?:\.\d+)*", rest))
