"""Break single lines of msgrad and see whether the tests of their folder notice.

python scripts/mutants.py --count 100                    a sample of all folders below
python scripts/mutants.py --count 20 --only training/_save.py

Each mutant is made in a copy of the project; a survivor is printed with its file, line and change.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The tests that guard a folder, cheapest first; the contract suite guards all and takes minutes.
GUARDS = {
    "freezing": ["tests/freezing", "tests/sequences"],
    "optim": ["tests/optim", "tests/training/test_step_rates.py"],
    "training": [
        *("tests/training/test_change_detection.py", "tests/training/test_stage.py"),
        *("tests/training", "tests/sequences", "tests/backend/test_ranks.py"),
    ],
    "replay": ["tests/replay"],
    "checkpoints": ["tests/checkpoints", "tests/training/test_resume.py"],
}
SWAPS = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def changes_of(node: ast.AST) -> Iterator[ast.AST]:
    """Give other forms of a statement or expression, each wrong in one place."""
    twin = copy.deepcopy(node)
    if isinstance(twin, ast.Compare):
        twin.ops[0] = SWAPS[type(twin.ops[0])]()
        yield twin
    elif isinstance(twin, ast.BoolOp):
        twin.op = SWAPS[type(twin.op)]()
        yield twin
    elif isinstance(twin, (ast.If, ast.IfExp)):
        twin.test = ast.UnaryOp(ast.Not(), twin.test)
        yield twin
    elif isinstance(twin, ast.Expr) and isinstance(twin.value, ast.Call):
        yield ast.Pass()
    elif isinstance(twin, ast.Constant) and isinstance(twin.value, bool):
        twin.value = not twin.value
        yield twin
    elif isinstance(twin, ast.Return) and twin.value is not None:
        twin.value = ast.Constant(None)
        yield twin


class Replace(ast.NodeTransformer):
    """Puts another node in the place of one."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the one, look inside all others."""
        if node is self.old:
            return ast.copy_location(self.new, node)
        return self.generic_visit(node)


def mutants_of(path: Path) -> list[tuple[int, str, str]]:
    """List the line, the change in words, and the whole text of each mutant of a file."""
    text = path.read_text(encoding="utf-8")
    found = []
    for number, node in enumerate(ast.walk(ast.parse(text))):
        for place, _ in enumerate(list(changes_of(node))):
            tree = ast.parse(text)
            old = list(ast.walk(tree))[number]
            new = list(changes_of(old))[place]
            said = (
                f"{ast.unparse(old)[:60]!r} -> {ast.unparse(ast.fix_missing_locations(new))[:60]!r}"
            )
            changed = ast.unparse(ast.fix_missing_locations(Replace(old, new).visit(tree)))
            found.append((getattr(old, "lineno", 0), said, changed))
    return found


def survives(copy_of_root: Path, guards: list[str], seconds: int) -> bool:
    """Run the tests; a failure or a run that does not end kills the mutant."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *guards]
    environment = {**os.environ, "GLOG_v": "4"}
    try:
        ran = subprocess.run(
            command, cwd=copy_of_root, env=environment, capture_output=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0


def main() -> int:
    """Draw mutants, try each, print survivors and the share that was killed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--count", type=int, default=100, help="mutants (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="what draws them (default 0)")
    parser.add_argument("--only", default="", help="part of a path under msgrad/")
    parser.add_argument("--seconds", type=int, default=900, help="longest run of tests")
    given = parser.parse_args()
    chance, killed = random.Random(given.seed), 0
    files = [p for name in GUARDS for p in sorted((ROOT / "msgrad" / name).glob("_[a-z]*.py"))]
    drawn = [(p, m) for p in files if given.only in str(p) for m in mutants_of(p)]
    drawn = chance.sample(drawn, min(given.count, len(drawn)))
    for path, (line, said, text) in drawn:
        with tempfile.TemporaryDirectory() as folder:
            there = Path(folder) / "msgrad"
            shutil.copytree(ROOT, there, ignore=shutil.ignore_patterns(".*", "runs", "__pycache__"))
            name = path.relative_to(ROOT)
            (there / name).write_text(text, encoding="utf-8")
            alive = survives(there, GUARDS[path.parent.name], given.seconds)
        killed += not alive
        print(f"{'SURVIVES' if alive else 'killed  '} {name}:{line} {said}", flush=True)
    print(f"{killed} of {len(drawn)} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
