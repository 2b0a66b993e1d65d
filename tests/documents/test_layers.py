"""The house of docs/architecture.md: folders in an order, faces between them, nothing too large."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import msgrad as mg

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "msgrad"
# The rows of the table, top to bottom; a folder imports from the rows under its own.
ROWS = re.findall(
    r"^\| `(\w+)/` \|", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), re.M
)
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
PLAIN = {
    "_files.py",
    "_text.py",
    "errors.py",
    "network/_pattern.py",
    "network/_names.py",
    "network/_fold.py",
}
LIBRARY = {"mindspore", "msgrad", "numpy"} | sys.stdlib_module_names
TOOLS = {"matplotlib", "rich", "yaml"}
MOST_FILES, MOST_LINES = 20, 300


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def folder_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else ""


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> set[tuple[str, str]]:
    """Return the modules that code imports, each with the name taken from it, or an empty one."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found |= {(module, alias.name) for alias in node.names}
    return found


def ours(path: Path) -> set[tuple[str, str]]:
    """Return what a file imports of msgrad: the folder or file beside it, and what lies behind."""
    found = set()
    for module, name in imported(parsed(path)):
        first, _, rest = module.partition(".")
        if first == "msgrad":
            top, _, behind = (rest or name).partition(".")
            found.add((top, behind))
    return found


def faults_of(path: Path) -> list[str]:
    """Name each import of a file that points up, or past the face of another folder."""
    own = folder_of(path)
    faults = []
    for top, behind in sorted(ours(path)):
        if top not in ROWS or top == own:
            continue
        if own and own in ROWS and ROWS.index(top) <= ROWS.index(own):
            faults.append(f"{name_of(path)} imports {top}, which is no folder under its own")
        if behind:
            faults.append(f"{name_of(path)} imports {top}.{behind} past the face of {top}")
    return faults


def test_the_page_names_each_folder_once():
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert sorted(ROWS) == sorted(folders)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_between_folders_point_down_and_to_faces(path):
    assert faults_of(path) == []


def cycle_in(folder: str) -> list[str]:
    """Return modules of a folder that import each other in a circle, none where there is none."""
    inside = {
        path.stem: {
            behind for top, behind in ours(path) if top == folder and behind and behind != path.stem
        }
        | {
            name
            for module, name in imported(parsed(path))
            if module == f"msgrad.{folder}" and (PACKAGE / folder / f"{name}.py").exists()
        }
        for path in (PACKAGE / folder).glob("_[a-z]*.py")
    }
    while inside:
        leaves = {module for module, wanted in inside.items() if not wanted & inside.keys()}
        if not leaves:
            return sorted(inside)
        inside = {module: wanted for module, wanted in inside.items() if module not in leaves}
    return []


@pytest.mark.parametrize("folder", ROWS)
def test_no_files_of_a_folder_import_each_other_in_a_circle(folder):
    assert cycle_in(folder) == []


@pytest.mark.parametrize("folder", ROWS)
def test_a_face_says_what_it_holds_and_lists_it_sorted(folder):
    tree = parsed(PACKAGE / folder / "__init__.py")
    listed = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    taken = {name for module, name in imported(tree) if module.startswith("msgrad.")}
    assert ast.get_docstring(tree)
    assert listed == sorted(listed)
    assert set(listed) == taken


def test_no_folder_holds_more_files_than_can_be_read():
    counts = Counter(
        str(path.parent.relative_to(ROOT))
        for top in ("msgrad", "tests")
        for path in (ROOT / top).rglob("*.py")
    )
    assert {folder: n for folder, n in counts.items() if n > MOST_FILES} == {}


def lines_of_code(text: str) -> int:
    """Count the lines that hold code: no docstring, comment or blank line."""
    passed = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in passed:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            lines.difference_update(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(lines)


def test_no_file_is_longer_than_can_be_read():
    lengths = {name_of(path): lines_of_code(path.read_text(encoding="utf-8")) for path in FILES}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_are_absolute_and_of_the_allowed_packages(path):
    tree = parsed(path)
    everywhere = {module.split(".")[0] for module, _ in imported(tree)}
    at_import = {
        module.split(".")[0]
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Try, ast.If))
        for module, _ in imported(node)
    }
    assert at_import - LIBRARY == set()
    assert everywhere - LIBRARY - TOOLS == set()


@pytest.mark.parametrize("path", [p for p in FILES if name_of(p) in PLAIN], ids=name_of)
def test_names_errors_and_texts_import_neither_mindspore_nor_numpy(path):
    packages = {module.split(".")[0] for module, _ in imported(parsed(path))}
    assert packages & {"mindspore", "numpy"} == set()


@pytest.mark.parametrize("name", mg.__all__)
def test_every_public_name_exists_and_has_a_docstring(name):
    assert getattr(mg, name).__doc__


SHIPPED = sorted(
    path
    for folder in ("benchmarks", "examples", "scripts", "tasks")
    for path in (ROOT / folder).glob("*.py")
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_users_may_copy_imports_public_names_alone(path):
    taken = [f"{module}.{name}" for module, name in imported(parsed(path))]
    ours = [name for name in taken if name.startswith("msgrad")]
    assert [name for name in ours if any(part.startswith("_") for part in name.split("."))] == []


def test_the_public_list_is_sorted():
    assert mg.__all__ == sorted(mg.__all__)


def test_type_checkers_see_every_public_name_where_it_is_found_at_run_time():
    checked = next(
        node for node in parsed(PACKAGE / "__init__.py").body if isinstance(node, ast.If)
    )
    assert ast.unparse(checked.test) == "TYPE_CHECKING"
    seen = {
        name: import_module(module if module != "msgrad" else f"msgrad.{name}")
        for module, name in imported(checked)
    }
    assert sorted(seen) == sorted([*mg.__all__, "errors", "runs"])
    assert [
        name
        for name, module in seen.items()
        if getattr(mg, name) is not getattr(module, name, module)
    ] == []
    assert {*mg.__all__, "errors", "runs"} <= set(dir(mg))


def test_a_name_that_is_not_public_is_missing_as_in_any_module():
    with pytest.raises(AttributeError, match="module 'msgrad' has no attribute 'freez'"):
        _ = mg.freez  # pyright: ignore[reportAttributeAccessIssue]
