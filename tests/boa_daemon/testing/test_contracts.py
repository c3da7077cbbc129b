"""The test kit for plugins: built-in parts and an example plugin pass it, and broken parts fail."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.simulated import FileCloud, SimulatedLimits
from boa_daemon.lab.traces.philly import import_philly
from boa_daemon.testing import ManualClock, an_instance_type
from boa_daemon.testing.contracts import (
    check_cloud,
    check_notifier,
    check_placer,
    check_policy,
    check_trace_format,
)
from policies import plugins
from policies.answer import Allocation, Placement
from policies.errors import BrokenPlugin, UnknownPolicy
from policies.model import GpuSlot, Width
from policies.placement.first_fit import FirstFit
from policies.registry import PLACERS, POLICIES, find_policy
from policies.site import BuiltPolicy, PolicyEntry

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_built_in_policy_passes(name: str) -> None:
    """`check_policy` finds no fault."""
    check_policy(POLICIES[name], draws=5)


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_every_built_in_placer_passes(name: str) -> None:
    """`check_placer` finds no fault."""
    check_placer(PLACERS[name], draws=20)


class Asked:
    """A policy that returns a given answer."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def allocate(self, jobs: Sequence[Any], **_given: Any) -> Allocation:
        return Allocation(widths={} if not jobs else self._answer(jobs))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda jobs: {"stranger": Width("gpu", 1)}, "not one of the given jobs"),
        (lambda jobs: {jobs[0].id: Width("gpu", 1000)}, "which allows"),
        (lambda jobs: {job.id: Width("gpu", 1) for job in jobs if random.random() < 0.5}, "other widths"),
    ],
)
def test_a_policy_that_breaks_the_contract_fails(answer: Any, sentence: str) -> None:
    """Unknown jobs, widths that no class allows and random answers are found."""
    entry = replace(POLICIES["asked"], build=lambda _site, _options: BuiltPolicy(allocator=Asked(answer)))
    with pytest.raises(AssertionError, match=sentence):
        check_policy(entry)


class Wrong:
    """A placer that changes a valid answer."""

    def __init__(self, change: Any) -> None:
        self._change = change

    def place(self, widths: Mapping[str, Width], **given: Any) -> Placement:
        return Placement(slots=self._change(dict(FirstFit().place(widths, **given).slots)))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda slots: {name: some[:-1] for name, some in slots.items()}, "for a job of width"),
        (
            lambda slots: {
                name: tuple(GpuSlot("n0", n) for n in range(len(some))) for name, some in slots.items()
            },
            "ready|two jobs|that node has|moved",
        ),
        (lambda slots: {}, "was moved"),
    ],
)
def test_a_placer_that_breaks_the_contract_fails(change: Any, sentence: str) -> None:
    """Too few GPUs, a GPU for two jobs and a needless move are found."""
    with pytest.raises(AssertionError, match=sentence):
        check_placer(lambda _kappa: Wrong(change))


class Forgetful(FileCloud):
    """A cloud that ignores the id of an order."""

    def launch(self, action: Any) -> Any:
        self.count = getattr(self, "count", 0) + 1
        return super().launch(replace(action, id=f"{action.id}-{self.count}"))


@pytest.mark.parametrize(("kind", "sentence"), [(FileCloud, ""), (Forgetful, "its id is the token")])
def test_a_cloud_that_launches_an_order_twice_fails(kind: Any, sentence: str, tmp_path: Path) -> None:
    """The simulated cloud passes."""
    clock = ManualClock(1_800_000_000.0)

    def pass_time(seconds: float) -> None:
        clock.instant += seconds

    cloud = kind(tmp_path / "cloud.sqlite", clock, limits=SimulatedLimits(boot_seconds=60.0))
    given: dict[str, Any] = {"kind": an_instance_type(), "now": clock.now, "pass_time": pass_time}
    if not sentence:
        check_cloud(cloud, **given)
        return
    with pytest.raises(AssertionError, match=sentence):
        check_cloud(cloud, **given)


def test_a_notifier_that_cuts_off_sentences_fails() -> None:
    """A complete sentence passes."""
    heard: list[str] = []
    check_notifier(lambda _address, sentence: heard.append(sentence), "", lambda: heard)
    heard.clear()
    with pytest.raises(AssertionError, match="did not arrive complete"):
        check_notifier(lambda _address, sentence: heard.append(sentence[:40]), "", lambda: heard)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the example plugin into a folder; return an environment in which it is found."""
    folder = tmp_path_factory.mktemp("site")
    source = shutil.copytree(ROOT / "examples/plugin", tmp_path_factory.mktemp("source") / "plugin")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-build-isolation",
        "--no-deps",
    ]
    subprocess.run([*command, "--target", str(folder), str(source)], check=True, capture_output=True)
    path = os.pathsep.join([str(folder), str(ROOT), *(entry for entry in sys.path if entry)])
    return {**os.environ, "PYTHONPATH": path, "TESTS": str(source / "tests")}


def run(environment: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command and return the finished process."""
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )


@pytest.mark.exhaustive
def test_the_example_plugin_passes_its_own_tests(installed: dict[str, str], tmp_path: Path) -> None:
    """The plugin's tests use the kit and find its parts through entry points."""
    # Without pytest's plugins: the tests need none, and importing them takes longer than the tests.
    alone = {**installed, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = run(alone, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", installed["TESTS"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


ONE_AFTER_THE_OTHER = """
import sys
from boa_daemon.cli import main
codes = []
for words in COMMANDS:
    sys.argv = ["boa", *words]
    try:
        main()
        codes.append(0)
    except SystemExit as end:
        codes.append(end.code or 0)
print(*codes)
"""


def test_the_commands_use_the_parts_of_the_example_plugin(installed: dict[str, str], tmp_path: Path) -> None:
    """The plugin's trace format, policy and placer work; a mistyped name gives exit code 2."""
    (tmp_path / "jobs.txt").write_text("".join(f"{600 * n} {0.5 + n % 3}\n" for n in range(20)))
    out = f"{tmp_path}/out"
    files = ("--trace", f"{out}/trace.csv", "--classes", f"{out}/classes.yaml", "--budget", "60/h")
    commands = (
        ("trace", "import", f"{tmp_path}/jobs.txt", "--from", "plain", "--out", out),
        ("simulate", *files, "--policy", "one-gpu-each", "--placer", "last-fit", "--json"),
        ("simulate", *files, "--policy", "one-gpu-eech"),
    )
    done = run(installed, "-c", f"COMMANDS = {commands!r}\n{ONE_AFTER_THE_OTHER}")
    *_, codes = done.stdout.splitlines()
    assert codes == "0 0 2", done.stdout + done.stderr
    assert '"finished": 20' in done.stdout
    assert "one-gpu-each" in done.stderr


def test_a_package_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other policies still work; naming the broken plugin gives an error with its cause."""
    from importlib.metadata import EntryPoint

    broken = EntryPoint(name="broken", value="no_such_package:thing", group="boa.policies")
    wrong = EntryPoint(name="wrong", value="math:pi", group="boa.policies")
    monkeypatch.setattr(plugins, "_found", lambda _group: {"broken": broken, "wrong": wrong})
    plugins.load.cache_clear()
    assert isinstance(find_policy("boa"), PolicyEntry)
    with pytest.raises(BrokenPlugin, match="no_such_package:thing, cannot be loaded: ModuleNotFoundError"):
        find_policy("broken")
    with pytest.raises(BrokenPlugin, match="no PolicyEntry but float"):
        find_policy("wrong")
    with pytest.raises(UnknownPolicy, match="Did you mean 'broken'"):
        find_policy("brokn")
    plugins.load.cache_clear()


def test_the_philly_trace_format_passes(tmp_path: Path) -> None:
    """The trace is a cut from Philly's."""
    source = ROOT / "tests/data/philly"
    check_trace_format(import_philly, next(source.glob("*.csv"), source))
