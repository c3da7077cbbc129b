"""The house: every module in a room, tests beside their module's mirror, and nobody in a circle."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest
from benchmark_modules import benchmark_module

ROOT = Path(__file__).resolve().parents[1]
AT_THE_ROOT = {
    "boa_daemon": {"__init__", "__main__", "clock", "errors", "serve", "units", "version"},
    "policies": {
        "__init__",
        "answer",
        "builders",
        "capacity_claims",
        "errors",
        "memo",
        "model",
        "plugins",
        "protocols",
        "fast_dataclasses",
        "registry",
        "site",
        "speedup",
    },
}
"""What everybody uses, and the outermost ring; everything else has a room."""

NOT_OF_ONE_MODULE = {
    "boa_daemon/api/test_api.py": "the whole package, over a socket",
    "boa_daemon/backends/aws/test_nodes.py": "listing, ending and sweeping together",
    "boa_daemon/backends/aws/test_lease.py": "the script backends/aws/node/lease.sh",
    "boa_daemon/cli/test_daemon_verbs.py": "the verbs of the daemon, in several modules",
    "boa_daemon/cli/test_mistakes.py": "what a new user types wrong, over all verbs",
    "boa_daemon/cli/test_main.py": "the command itself, cli/__init__.py",
    "boa_daemon/comparing/test_compare.py": "the whole package",
    "boa_daemon/dashboard/test_scripts.py": "data/page/*.js: what the scripts of the page work out",
    "boa_daemon/daemon/test_budget_settings.py": "config.py and the planner: budgets per month and per hour",
    "boa_daemon/daemon/test_health.py": "the loop with jobs that stall, fail, or lose their node",
    "boa_daemon/engines/test_contract.py": "what every engine promises",
    "boa_daemon/gate/test_best_order.py": "the broker against benchmarks/gate_best.py",
    "boa_daemon/gate/test_client.py": "job/gate/client.py against a gate, with the fixtures of this folder",
    "boa_daemon/gate/test_faults.py": "broker, server and client while jobs and gates fail",
    "boa_daemon/inputs/test_calendar_mistakes.py": "lists, hours, budgets and changes typed wrong",
    "boa_daemon/inputs/test_problem_file_network.py": "problem_file.py: what classes send",
    "boa_daemon/job/test_inject.py": "the package job/inject, in a job's Python",
    "boa_daemon/job/test_job.py": "what boa_daemon.job exports",
    "boa_daemon/network/test_network_cli.py": "the package through the command",
    "boa_daemon/sim/test_outage.py": "the cloud and the world together",
    "boa_daemon/sim/test_tries.py": "tries of unknown widths, from the learner to the bill",
    "boa_daemon/store/test_store_contract.py": "what every store promises",
    "boa_daemon/test_serve_refusals.py": "serve.py: starts that are refused",
    "boa_daemon/tick/test_leaving.py": "find_changes.py, place.py and diff.py: nodes whose end is announced",
    "boa_daemon/tick/test_whole_nodes.py": "rent.py, start_early.py, release.py: plans in whole nodes",
    "boa_daemon/traces/test_cli.py": "the package through the command",
    "boa_daemon/traces/test_demo.py": "the trace that is shipped",
    "policies/online/test_coverage.py": "every interval that is stated, against the truth",
    "policies/optimum/test_solver_oracles.py": "all solvers against independent ones",
}
"""Tests that are not about the one module of their name, and what they are about."""


MAY_CHANGE = {
    "boa_daemon/tick/cap_projection.py:_Purse": "money that a projection takes out",
    "boa_daemon/tick/stages/empty_nodes.py:_Shared": "counted up node by node",
    "boa_daemon/tick/team_caps.py:_Purse": "money that a projection takes out",
    "policies/optimum/real_widths.py:_Builder": "terms that are collected",
    "policies/online/cost_to_go.py:CostsByScale": "keeps the tables that it has made",
    "policies/rivals/a_srpt.py:VirtualMachine": "the policy's own machine, which it plays on",
}
"""Dataclasses of the mathematics and the tick that are not frozen, and why."""


@pytest.fixture(scope="module")
def house() -> ModuleType:
    """Return benchmarks/house.py as a module."""
    return benchmark_module("house")


@pytest.mark.parametrize("package", sorted(AT_THE_ROOT))
def test_a_new_module_goes_to_a_room(package: str) -> None:
    """At the root of a package stands only what everybody uses."""
    assert {path.stem for path in (ROOT / package).glob("*.py")} == AT_THE_ROOT[package]


def test_tests_stand_where_their_module_stands() -> None:
    """`tests/policies/rivals/test_pollux.py` is about `policies/rivals/pollux.py`; others are on the list."""
    tests = [path for package in AT_THE_ROOT for path in (ROOT / "tests" / package).rglob("test_*.py")]
    alone = set()
    for path in tests:
        mirror = path.relative_to(ROOT / "tests")
        if not (ROOT / mirror.with_name(mirror.name.removeprefix("test_"))).is_file():
            alone.add(mirror.as_posix())

    assert alone == set(NOT_OF_ONE_MODULE)


def test_folders_of_tests_are_rooms() -> None:
    """No folder of tests outlives its room."""
    folders = {path.parent for package in AT_THE_ROOT for path in (ROOT / "tests" / package).rglob("*.py")}

    assert [f for f in folders if not (ROOT / f.relative_to(ROOT / "tests")).is_dir()] == []


def test_no_file_and_no_package_is_in_a_circle(house: ModuleType) -> None:
    """Whoever reads a file can read what it imports first; types and imports inside functions count."""
    files = house.modules()
    graph = house.imports(files)

    assert house.circles(graph) == []
    assert house.circles(house.between_rooms(files, graph)) == []


def test_a_circle_is_found(house: ModuleType) -> None:
    """One of three files beside a chain that only leads there."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}

    assert house.circles(graph) == [["a", "b", "c"]]


def _asks_for_a_name(node: ast.AST) -> bool:
    """Whether code compares the name of a cloud or of an engine, or types it as one of a few."""
    if isinstance(node, ast.Compare):
        sides = (node.left, *node.comparators)
        said = (ast.unparse(side) for side in sides if not isinstance(side, ast.Constant))
        is_name = any(side.endswith(("provider", "engine.name")) for side in said)
        return is_name and any(isinstance(how, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for how in node.ops)
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Literal["):
        return ast.unparse(node.target) in ("provider", "engine")
    return isinstance(node, ast.Match) and ast.unparse(node.subject).endswith(("provider", "engine.name"))


def test_clouds_and_engines_are_not_asked_for_by_name() -> None:
    """`backends/cloud_kinds.py` and `engines/engine_kinds.py` list them; a new one is a line there."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"  # type: ignore[attr-defined]
        for path in (ROOT / "boa_daemon").rglob("*.py")
        if path.name not in ("cloud_kinds.py", "engine_kinds.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if _asks_for_a_name(node)
    ]

    assert found == []


def test_what_the_mathematics_and_the_tick_say_is_frozen() -> None:
    """A plan, a state, a problem is never changed behind the back of who holds it; the others are listed."""
    found = set()
    for package in ("policies", "boa_daemon/tick"):
        for path in (ROOT / package).rglob("*.py"):
            for one in ast.walk(ast.parse(path.read_text())):
                for decorator in one.decorator_list if isinstance(one, ast.ClassDef) else ():
                    said = ast.unparse(decorator)
                    if said.startswith("dataclass") and "frozen=True" not in said:
                        found.add(f"{path.relative_to(ROOT)}:{one.name}")  # type: ignore[attr-defined]

    assert found == set(MAY_CHANGE)
