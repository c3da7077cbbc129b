"""Mutation testing in a copy of the tree: how many small changes of the deciding code do tests notice?

    python benchmarks/mutants.py --draw 150 --seed 1
    python benchmarks/mutants.py boa_daemon/tick/money/ledger.py

A place in the modules is drawn, and then one of the changes that cosmic-ray has for that place; without
`--draw`, every change at every place is tried. A change is judged by the tests of its module first (the
mirror in `tests/`), and if they pass by the tests of that folder. Surviving changes are printed: a test is
missing, the code is not needed, or the change has no effect. Verdicts are kept in `build/mutants.jsonl` by
content, so a run that was interrupted can continue.

Not mutated are types, the flags of a dataclass (`tests/test_house.py` checks them) and `strict=`, which
guards against something that never happens.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ |= {"CI": "1", "OPENBLAS_NUM_THREADS": "1"}  # Always the same hypothesis examples.

import hypothesis
import pytest
import scipy.optimize  # Imported once here, not in each of hundreds of forks.
import scipy.stats  # noqa: F401
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[1]
KEPT, TIMES = ROOT / "build/mutants.jsonl", ROOT / "build/mutants-times.json"
PACKAGES = ("policies", "boa_daemon/tick")
PYTEST = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-o", "addopts="]
PYTEST += [
    "-m",
    "not exhaustive",
    "--import-mode=importlib",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]
LIST = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
MOST_SECONDS = 4.0
"""Slower tests of a folder are run only for changes of their own module."""
FLAGS = {"frozen", "slots", "kw_only", "strict"}
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change."""

    module: str
    text: str

    def __str__(self) -> str:
        """Return the place of the change, and the lines before and after."""
        before, after = Path(self.module).read_text().splitlines(), self.text.splitlines()
        line = next(n for n, (old, new) in enumerate(zip(before, after, strict=False)) if old != new)
        gone = len(before) - len(after)  # Positive if a decorator was removed.
        new = "(nothing)" if gone > 0 else after[line].strip()
        return f"{self.module}:{line + 1}\n    - {before[line].strip()}\n    + {new}"


class _Meaning(ast.NodeTransformer):
    """Removes the parts of a module that are not mutated."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [word for word in node.keywords if word.arg not in FLAGS]
        return self.generic_visit(node)


def _meaning(text: str) -> str | None:
    try:
        return ast.dump(_Meaning().visit(ast.parse(text)))
    except SyntaxError:
        return None


def mutants(modules: Sequence[str], *, draw: int | None, seed: int) -> Iterator[Mutant]:
    """Yield changes of the modules: one for each place of a sample, or all."""
    operators = [get_operator(name) for name in operator_names() if not name.endswith("/NoOp")]
    places: dict[tuple[str, tuple[int, int]], list[tuple[type, int]]] = defaultdict(list)
    for module in modules:
        nodes = list(ast_nodes(get_ast(Path(module).read_text())))
        for operator in (one for one in operators if not one.arguments()):
            found = (start for node in nodes for start, _ in operator().mutation_positions(node))
            for occurrence, start in enumerate(found):
                places[module, start].append((operator, occurrence))
    chance = random.Random(seed)
    order = chance.sample(sorted(places), len(places)) if draw else sorted(places)
    count = 0
    for module, start in order:
        text = Path(module).read_text()
        changes = places[module, start]
        for operator, occurrence in [chance.choice(changes)] if draw else changes:
            changed = mutate_code(text, operator(), occurrence)
            if changed is not None and _meaning(changed) not in (None, _meaning(text)):
                count += 1
                yield Mutant(module, changed)
        if count == draw:
            return


def tests_of(module: str) -> tuple[list[str], list[str]]:
    """Return the tests of a module and of its folder; without a mirror, the folder's tests twice."""
    path = Path("tests", module)
    mirror, folder = path.with_name(f"test_{path.name}"), path.parent
    if folder.name == "stages":  # Half of the stages are tested by whole ticks.
        folder = folder.parent
    every = sorted(folder.glob("test_*.py") if folder.name == "policies" else folder.rglob("test_*.py"))
    names = [one.as_posix() for one in every]
    return ([mirror.as_posix()] if mirror.is_file() else names), names


def _sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted(Path(package).rglob("*.py"))]


@dataclass(slots=True)
class _QuickFirst:
    """A pytest plug-in: runs the tests by their last processor time and leaves out the slowest."""

    most_seconds: float
    times: dict[str, float]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        quick = [item for item in items if self.times.get(item.nodeid, 0.0) <= self.most_seconds]
        items[:] = sorted(quick, key=lambda item: self.times.get(item.nodeid, 0.0))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        before = time.process_time()
        try:
            return (yield)
        finally:
            self.times[item.nodeid] = round(time.process_time() - before, 2)


def _child(tests: Sequence[str], most_seconds: float, *, limit_seconds: int, is_changed: bool) -> None:
    """Run tests without shrinking failing examples, and exit with their status."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (limit_seconds, limit_seconds))
    sys.path[:0] = [str(Path.cwd()), str(Path.cwd() / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    said = os.open(KEPT.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("first failure", phases=phases, database=None)
    hypothesis.settings.load_profile("first failure")
    plugin = _QuickFirst(most_seconds, json.loads(TIMES.read_text()) if TIMES.exists() else {})
    status = pytest.main([*PYTEST, *tests], plugins=[plugin])
    if not is_changed:
        TIMES.write_text(json.dumps(plugin.times))
    os._exit(status)


@dataclass(slots=True)
class Judge:
    """Runs the tests on a change, and remembers the verdict."""

    limit_seconds: int
    kept: dict[str, bool]
    stamps: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000_000, 2_000_000_000)))

    def notice(self, mutant: Mutant, tests: Sequence[str], *, most_seconds: float = math.inf) -> bool:
        """Return whether some tests fail or do not end with a change; they must pass without it."""
        texts = [Path(test).read_text() for test in tests]
        if not self._pass(None, tests, [*map(Path.read_text, _sources()), *texts], most_seconds):
            raise SystemExit(
                f"These fail, or take too long, without any change (see build/mutants.log): {' '.join(tests)}"
            )
        return not self._pass(mutant, tests, [mutant.module, mutant.text, *texts], most_seconds)

    def _pass(
        self, mutant: Mutant | None, tests: Sequence[str], content: Sequence[str], most_seconds: float
    ) -> bool:
        key = hashlib.sha256("\0".join(content).encode()).hexdigest()
        if key not in self.kept:
            if mutant:
                original = Path(mutant.module).read_text()
                self._write(mutant.module, mutant.text)
            words = {"limit_seconds": self.limit_seconds, "is_changed": mutant is not None}
            child = FORK.Process(target=_child, args=(tests, most_seconds), kwargs=words)
            child.start()
            child.join(10.0 * self.limit_seconds)  # Wall time, for a busy machine or a child that sleeps.
            if child.exitcode is None:
                os.killpg(child.pid or 0, signal.SIGKILL)
                child.join()
            if mutant:
                self._write(mutant.module, original)
            self.kept[key] = child.exitcode == 0
            if mutant or self.kept[key]:
                with KEPT.open("a") as file:
                    file.write(json.dumps([key, self.kept[key]]) + "\n")
        return self.kept[key]

    def _write(self, module: str, text: str) -> None:
        path, stamp = Path(module), next(self.stamps)
        path.write_text(text)
        os.utime(
            path, (stamp, stamp)
        )  # Otherwise Python could use compiled code of the same second and size.


def main() -> None:
    """Print the surviving changes and a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", help="files of policies/ or boa_daemon/tick/ (default: all)")
    parser.add_argument("--draw", type=int, help="how many places to draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=60, help="processor seconds of one run of tests")
    flags = parser.parse_args()
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.touch()
    kept = dict(json.loads(line) for line in KEPT.read_text().splitlines())
    verdicts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="boa-mutants-") as name:
        copy = Path(name)
        listed = subprocess.run(LIST, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        for path in map(Path, listed.splitlines()):
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, copy / path)
        os.chdir(copy)  # Work in the copy, so that the tree may be edited meanwhile.
        modules = flags.modules or [path.as_posix() for path in _sources()]
        judge = Judge(flags.limit, kept)
        for mutant in mutants(modules, draw=flags.draw, seed=flags.seed):
            own, folder = tests_of(mutant.module)
            most = math.inf if own != folder else MOST_SECONDS
            if judge.notice(mutant, own, most_seconds=most):
                verdicts[
                    "noticed by its own tests" if own != folder else "noticed by its folder's tests"
                ] += 1
            elif own != folder and judge.notice(mutant, folder, most_seconds=MOST_SECONDS):
                verdicts["noticed by its folder's tests"] += 1
            else:
                verdicts["survived"] += 1
                print(mutant, flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))


if __name__ == "__main__":
    main()
