"""The kit for other packages: ours pass it, as an outside package does; what breaks a promise does not."""

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
from boa_daemon.testing import ManualClock, an_instance_type
from boa_daemon.testing.contracts import (
    check_cloud,
    check_notifier,
    check_placer,
    check_policy,
    check_trace_format,
)
from boa_daemon.traces.philly import import_philly
from policies import plugins
from policies.answer import Allocation, Placement
from policies.errors import BrokenPlugin, UnknownPolicy
from policies.model import GpuSlot, Width
from policies.placement.first_fit import FirstFit
from policies.registry import PLACERS, POLICIES, find_policy
from policies.site import BuiltPolicy, PolicyEntry

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_our_policies_pass(name: str) -> None:
    """Each of the table."""
    check_policy(POLICIES[name], draws=5)


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_our_placers_pass(name: str) -> None:
    """Each of the table."""
    check_placer(PLACERS[name], draws=20)


class Asked:
    """A policy that answers what it was given to answer."""

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
def test_a_policy_that_breaks_a_promise_is_found(answer: Any, sentence: str) -> None:
    """Jobs that nobody asked about, widths that no class allows, chance."""
    entry = replace(POLICIES["asked"], build=lambda _site, _options: BuiltPolicy(allocator=Asked(answer)))
    with pytest.raises(AssertionError, match=sentence):
        check_policy(entry)


class Wrong:
    """A placer that changes a good answer."""

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
def test_a_placer_that_breaks_a_promise_is_found(change: Any, sentence: str) -> None:
    """Half a width, a GPU for two jobs, a job that is moved for nothing."""
    with pytest.raises(AssertionError, match=sentence):
        check_placer(lambda _kappa: Wrong(change))


class Forgetful(FileCloud):
    """A cloud that takes no notice of an order's id."""

    def launch(self, action: Any) -> Any:
        self.count = getattr(self, "count", 0) + 1
        return super().launch(replace(action, id=f"{action.id}-{self.count}"))


@pytest.mark.parametrize(("kind", "sentence"), [(FileCloud, ""), (Forgetful, "its id is the token")])
def test_a_cloud_that_launches_twice_is_found(kind: Any, sentence: str, tmp_path: Path) -> None:
    """Ours does not."""
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


def test_a_notifier_that_loses_half_is_found() -> None:
    """What is cut off was not told."""
    heard: list[str] = []
    check_notifier(lambda _address, sentence: heard.append(sentence), "", lambda: heard)
    heard.clear()
    with pytest.raises(AssertionError, match="did not arrive complete"):
        check_notifier(lambda _address, sentence: heard.append(sentence[:40]), "", lambda: heard)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the example package into a folder; return an environment in which it is found."""
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
    """Run a command and return what it said."""
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
    )


def test_an_outside_package_passes_its_own_tests_by_the_kit(
    installed: dict[str, str], tmp_path: Path
) -> None:
    """One of each, found by name through its entry points."""
    # No plug-ins of pytest: nothing there needs them, and they are slower to import than the tests to run.
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


def test_what_it_adds_works_in_the_commands(installed: dict[str, str], tmp_path: Path) -> None:
    """Its trace is imported, its policy and placer simulate it; a wrong name is told what there is."""
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
    """Nobody else notices it; whoever names it hears which one it is and why."""
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


def test_a_trace_format_of_ours_passes(tmp_path: Path) -> None:
    """Philly's, as cut for the tests."""
    source = ROOT / "tests/data/philly"
    check_trace_format(import_philly, next(source.glob("*.csv"), source))
