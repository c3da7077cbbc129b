"""Structure of the code: each module is in a package folder, tests mirror modules, imports have no cycle."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from benchmark_modules import benchmark_module
from pure_code import ALLOWED, ALSO, impurities

ROOT = Path(__file__).resolve().parents[1]
AT_THE_ROOT = {
    "boa_daemon": {
        "__init__",
        "__main__",
        "clock",
        "csv_text",
        "errors",
        "extras",
        "number_text",
        "serve",
        "text_files",
        "time_text",
        "units",
        "version",
    },
    "policies": {
        "__init__",
        "answer",
        "builders",
        "capacity_claims",
        "money_text",
        "errors",
        "kinds",
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
    "boa_daemon/api/test_page_wild.py": "the page with foreign names, thousands of teams, and on paper",
    "boa_daemon/api/test_page_worlds.py": "the page's first sentences where something is wrong",
    "boa_daemon/backends/aws/client/test_renewed_credentials.py": "client/calls.py with renewed credentials",
    "boa_daemon/daemon/watch/test_alert_servers.py": "alerts.py over real servers of mail and the web",
    "boa_daemon/backends/aws/test_nodes.py": "listing, ending and sweeping together",
    "boa_daemon/backends/aws/test_lease.py": "the script backends/aws/node/lease.sh",
    "boa_daemon/cli/test_daemon_verbs.py": "the verbs of the daemon, in several modules",
    "boa_daemon/cli/test_mistakes.py": "what a new user types wrong, over all verbs",
    "boa_daemon/cli/test_widths.py": "what all verbs draw at 80 and 120 columns",
    "boa_daemon/cli/test_units_asked.py": "the unit of the answer, over all verbs that take a budget",
    "boa_daemon/cli/test_main.py": "the command itself, cli/__init__.py",
    "boa_daemon/lab/compare/test_compare.py": "the whole package",
    "boa_daemon/dashboard/test_scripts.py": "data/page/*.js: what the scripts of the page work out",
    "boa_daemon/daemon/test_budget_settings.py": "config.py and the planner: budgets per month and per hour",
    "boa_daemon/daemon/test_health.py": "the loop with jobs that stall, fail, or lose their node",
    "boa_daemon/engines/test_contract.py": "what every engine promises",
    "boa_daemon/engines/test_process_limits.py": "local.py, keeper and guard without room for a process",
    "boa_daemon/gate/test_best_order.py": "the broker against benchmarks/gate_best.py",
    "boa_daemon/gate/test_client.py": "job/gate/client.py against a gate, with the fixtures of this folder",
    "boa_daemon/gate/test_faults.py": "broker, server and client while jobs and gates fail",
    "boa_daemon/inputs/test_calendar_mistakes.py": "lists, hours, budgets and changes typed wrong",
    "boa_daemon/inputs/test_problem_file_network.py": "problem_file.py: what classes send",
    "boa_daemon/lab/traces/test_strangers.py": "files of people, by every reader of tables",
    "boa_daemon/job/test_inject.py": "the package job/inject, in a job's Python",
    "boa_daemon/job/test_job.py": "what boa_daemon.job exports",
    "boa_daemon/lab/test_apart.py": "the program without the laboratory",
    "boa_daemon/lab/network/test_network_cli.py": "the package through the command",
    "boa_daemon/sim/test_outage.py": "the cloud and the world together",
    "boa_daemon/sim/test_tries.py": "tries of unknown widths, from the learner to the bill",
    "boa_daemon/store/test_store_contract.py": "what every store promises",
    "boa_daemon/test_serve_refusals.py": "serve.py: starts that are refused",
    "boa_daemon/tick/test_leaving.py": "find_changes.py, place.py and diff.py: nodes whose end is announced",
    "boa_daemon/tick/test_whole_nodes.py": "rent.py, start_early.py, release.py: plans in whole nodes",
    "boa_daemon/lab/traces/test_cli.py": "the package through the command",
    "boa_daemon/backends/aws/test_house_tags.py": "tags of the house, wherever they are written",
    "boa_daemon/backends/aws/instances/test_reservations.py": "market, launch and ledger of reservations",
    "boa_daemon/traces/test_demo.py": "the trace that is shipped",
    "policies/online/test_coverage.py": "every interval that is stated, against the truth",
    "policies/optimum/test_solver_oracles.py": "all solvers against independent ones",
}
"""Tests that are not about the one module of their name, and what they are about."""


NAMES_FOR_PLUG_INS = {"actions", "assembly", "config", "ports"}
"""One-line names of modules that plug-ins import; the modules themselves are in a room."""

OTHER_SIGNS = {
    "benchmarks/pollux.py": "classes of this benchmark, by the most GPUs of a job",
    "boa_daemon/api/authentication.py": "a user and a domain",
    "boa_daemon/backends/slurm.py": "a mark of a node that sleeps",
    "boa_daemon/daemon/loop/systemd.py": "an abstract socket",
    "boa_daemon/daemon/settings/setting_paths.py": "a home folder",
    "boa_daemon/daemon/service/slurm_nodes.py": "a mark of a node that sleeps",
    "boa_daemon/inputs/document_file.py": "nothing, in YAML",
    "boa_daemon/inputs/yaml_events.py": "nothing, in YAML",
    "boa_daemon/job/gate/address_file.py": "a home folder",
    "boa_daemon/planning/plan_diff.py": "the sign of a change",
    "boa_daemon/slurm/commands.py": "marks of what a node of Slurm does",
    "boa_daemon/slurm/options.py": "a signal and its seconds",
    "boa_daemon/testing/fake_slurm.py": "a mark of a node that sleeps",
    "boa_daemon/tick/facts/node_lives.py": "the life that a node is in",
}
"""Modules that read or write `@` and `~` in other texts than names of GPU types and machines."""

MAY_CHANGE = {
    "boa_daemon/tick/money/cap_projection.py:_Purse": "money that a projection takes out",
    "boa_daemon/tick/stages/nodes/empty_nodes.py:_Shared": "counted up node by node",
    "boa_daemon/tick/money/team_caps.py:_Purse": "money that a projection takes out",
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
def test_the_root_of_a_package_holds_only_the_listed_modules(package: str) -> None:
    """A new module goes into a folder of the package."""
    assert {path.stem for path in (ROOT / package).glob("*.py")} == AT_THE_ROOT[package]


def test_a_test_file_mirrors_its_module_or_is_listed() -> None:
    """`tests/policies/rivals/test_pollux.py` tests `policies/rivals/pollux.py`; the rest is listed."""
    tests = [path for package in AT_THE_ROOT for path in (ROOT / "tests" / package).rglob("test_*.py")]
    alone = set()
    for path in tests:
        mirror = path.relative_to(ROOT / "tests")
        if not (ROOT / mirror.with_name(mirror.name.removeprefix("test_"))).is_file():
            alone.add(mirror.as_posix())

    assert alone == set(NOT_OF_ONE_MODULE)


def test_each_folder_of_tests_mirrors_a_folder_of_code() -> None:
    """A folder of tests is deleted or moved with its package."""
    folders = {path.parent for package in AT_THE_ROOT for path in (ROOT / "tests" / package).rglob("*.py")}

    assert [f for f in folders if not (ROOT / f.relative_to(ROOT / "tests")).is_dir()] == []


def test_no_module_and_no_package_is_in_an_import_cycle(house: ModuleType) -> None:
    """Imports for types and imports inside functions count as well."""
    files = house.modules()
    graph = house.imports(files)

    assert house.circles(graph) == []
    assert house.circles(house.between_rooms(files, graph)) == []


def test_circles_finds_a_cycle_of_three(house: ModuleType) -> None:
    """A module that only leads to the cycle is not part of it."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}

    assert house.circles(graph) == [["a", "b", "c"]]


def test_the_map_of_layers_is_that_of_the_contracts() -> None:
    """docs/explanation/architecture.md draws the same layers as pyproject.toml, from the top down."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layered = {each["containers"][0]: each["layers"] for each in contracts["contracts"] if "layers" in each}
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    drawn = page.split("## Who may import whom")[1].split("```")[1]

    outer, _, inner = drawn.strip().partition("\ncli:")
    assert [_names(line.split("  none of")[0].split("  nor these")[0]) for line in outer.splitlines()] == [
        _names(layer) for layer in layered.pop("boa_daemon")
    ]
    rooms = dict(re.findall(r"^(\w+):([^:]*)(?=\n\w+:|\Z)", f"cli:{inner}", re.MULTILINE))
    for package, layers in layered.items():
        drawn_layers = [_names(layer) for layer in rooms.pop(package.rpartition(".")[2]).split(">")]
        own = [_names(layer) - NAMES_FOR_PLUG_INS for layer in layers]
        assert drawn_layers == [layer for layer in own if layer]
    assert not rooms


def _names(text: str) -> set[str]:
    """Return the names in a layer."""
    return set(re.findall(r"\w+", text))


def test_the_places_of_a_member_are_the_files_that_name_it(
    house: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of `testing/` is no place; a revision that does not exist is an error."""
    listed = "HEAD:boa_daemon/cli/verbs.py\nHEAD:boa_daemon/testing/shims.py\n"
    answers = iter([(0, listed), (1, ""), (128, "")])

    def run(asked: list[str], **_options: object) -> subprocess.CompletedProcess[str]:
        code, text = next(answers)
        return subprocess.CompletedProcess(asked, code, text)

    monkeypatch.setattr(house.subprocess, "run", run)
    assert house.places("resize", "HEAD") == 1
    assert house.places("nowhere", "HEAD") == 0
    with pytest.raises(subprocess.CalledProcessError):
        house.places("resize", "gone")


def test_a_word_in_a_docstring_is_no_place_in_code(house: ModuleType) -> None:
    """Names, keys in texts and keywords count; docstrings and comments do not."""
    prose = '"""resize"""\nx = 1  # resize\n"""resize"""\nclass A:\n    """resize"""\n'
    assert "resize" not in house.code_of(prose)
    for code in ("def resize(): ...", "x = {'resize': 1}", "f(resize=1)", "f('see resize')"):
        assert "resize" in house.code_of(code)


def _asks_for_a_name(node: ast.AST) -> bool:
    """Return whether code compares a cloud's or engine's name, or types it as one of a few literals."""
    if isinstance(node, ast.Compare):
        sides = (node.left, *node.comparators)
        said = (ast.unparse(side) for side in sides if not isinstance(side, ast.Constant))
        is_name = any(side.endswith(("provider", "engine.name")) for side in said)
        return is_name and any(isinstance(how, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for how in node.ops)
    if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation).startswith("Literal["):
        return ast.unparse(node.target) in ("provider", "engine")
    return isinstance(node, ast.Match) and ast.unparse(node.subject).endswith(("provider", "engine.name"))


def test_no_code_compares_the_name_of_a_cloud_or_engine() -> None:
    """Only `backends/cloud_kinds.py` and `engines/engine_kinds.py` list names; a new one is a line there."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"  # type: ignore[attr-defined]
        for path in (ROOT / "boa_daemon").rglob("*.py")
        if path.name not in ("cloud_kinds.py", "engine_kinds.py")
        if re.search(r"provider|engine", text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if _asks_for_a_name(node)
    ]

    assert found == []


def _signs(tree: ast.AST) -> set[int]:
    """Return the lines with text that takes a name apart or puts one together: `"@"`, `"~"`, `"@spot"`."""
    signs = ("@", "~", "@spot")
    alone = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in signs
    }
    joined = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
        if isinstance(part, ast.Constant) and str(part.value).startswith(("@", "~"))
    }
    return alone | joined


def test_one_module_knows_how_names_of_gpu_types_and_machines_are_written() -> None:
    """All others ask `policies.kinds` for the parts of a name; other texts with such signs are listed."""
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("boa_daemon", "policies", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        # Text that begins with a sign: most modules have none, and need not be parsed.
        if re.search(r"""["'}][@~]""", text := path.read_text(encoding="utf-8")) and _signs(ast.parse(text))
    }

    assert found == {"policies/kinds.py", *OTHER_SIGNS}


@pytest.mark.parametrize(
    "source",
    [
        'kind.partition("@")[0]',
        'name.endswith("@spot")',
        '"@" in kind',
        'f"{card}@{machine}"',
        'f"{name}@spot"',
        'name + "@spot"',
        '_IN = "~"',
        'f"{name}~{region}"',
    ],
)
def test_a_name_that_is_taken_apart_elsewhere_is_noticed(source: str) -> None:
    """Whether by a method, a comparison, a sum or a constant."""
    assert _signs(ast.parse(source)) == {1}


def test_dataclasses_of_policies_and_tick_are_frozen_or_listed() -> None:
    """A plan, a state or a problem never changes after it is made; the exceptions are listed."""
    found = set()
    for package in ("policies", "boa_daemon/tick"):
        for path in (ROOT / package).rglob("*.py"):
            for one in ast.walk(ast.parse(path.read_text())):
                for decorator in one.decorator_list if isinstance(one, ast.ClassDef) else ():
                    said = ast.unparse(decorator)
                    if said.startswith("dataclass") and "frozen=True" not in said:
                        found.add(f"{path.relative_to(ROOT)}:{one.name}")  # type: ignore[attr-defined]

    assert found == set(MAY_CHANGE)


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_what_decides_reads_no_clock_no_file_and_no_random_source(package: str) -> None:
    """`tick/` and `policies/` import only what is listed, and call nothing that answers differently twice."""
    found = {
        path.relative_to(ROOT).as_posix(): impure
        for path in sorted((ROOT / package).rglob("*.py"))
        if (impure := impurities(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()))
    }

    assert found == {}
    assert all((ROOT / path).is_file() for path in ALSO)


@pytest.mark.parametrize("path", ["boa_daemon/tick/decide/diff.py", "policies/online/pacing.py"])
@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic",
        "import random",
        "from random import choice as pick",
        "import os.path",
        "import pandas",
        "import requests",
        "import numba",
        "import secrets, uuid",
        "from pathlib import Path",
        "def inside():\n    import socket",
        "if TYPE_CHECKING:\n    from boa_daemon.store.queue import JobQueue",
        "from boa_daemon import clock",
        "from boa_daemon.clock import SystemClock",
        "from . import caps",
        "import importlib",
        "from numpy import random",
        "import numpy.random as draws",
        "from numpy.random import rand",
        "np.random.rand(3)",
        "numpy.random.seed(1)",
        "np.random.default_rng()",
        "np.load('table.npy')",
        "from scipy.io import loadmat",
        "datetime.now(UTC)",
        "datetime.datetime.utcnow()",
        "date.today()",
        "datetime.fromtimestamp(now)",
        "open('/proc/uptime')",
        "__import__('time').time()",
        "eval('1')",
        "exec('import time')",
        "print('here')",
    ],
)
def test_what_is_impure_is_noticed(source: str, path: str) -> None:
    """An import of a clock, a file or a network is refused in each form that Python has for it."""
    assert impurities(source, path)


@pytest.mark.parametrize(
    "source",
    [
        "import math",
        "from collections.abc import Mapping",
        "from policies.model import Job",
        "np.random.default_rng(seed).gamma(1.0)",
        "def draw(rng: np.random.Generator) -> float: return rng.random()",
        "datetime.fromtimestamp(now, UTC)",
        "state.now",
    ],
)
def test_what_is_pure_is_allowed(source: str) -> None:
    """Mathematics, our own nouns, and random numbers of a given seed."""
    assert impurities(source, "policies/online/pacing.py") == []


def test_a_set_of_tests_needs_nothing_of_another_set() -> None:
    """`pytest -m lab` runs where PyTorch is not installed: files of other sets are not even imported."""
    said = "import sys; sys.modules['torch'] = None; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ["-q", "-m", "lab", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-c", said, *options, "tests/boa_daemon/job", "tests/boa_daemon/library"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]
