"""The parts of this package, found by name as BOA finds them, pass the contract tests."""

from __future__ import annotations

from pathlib import Path

from boa_daemon.daemon.assembly import CLOUDS
from boa_daemon.daemon.config import Settings
from boa_daemon.testing import ManualClock, an_instance_type, contracts
from policies import plugins
from policies.registry import find_placer, find_policy


def test_the_policy() -> None:
    contracts.check_policy(find_policy("one-gpu-each"))


def test_the_placer() -> None:
    assert type(find_placer("last-fit")).__name__ == "LastFit"
    contracts.check_placer(plugins.load("boa.placers", "last-fit"))


def test_the_trace_format(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text("0 1.5\n1800 0.25\n7200 3\n")
    contracts.check_trace_format(plugins.load("boa.traces", "plain"), tmp_path / "jobs.txt")


def test_the_cloud(tmp_path: Path) -> None:
    assert "shelf" not in CLOUDS
    clock = ManualClock(1_800_000_000.0)

    def pass_time(seconds: float) -> None:
        clock.instant += seconds

    cloud = plugins.load("boa.clouds", "shelf")(Settings(), tmp_path, clock, "")
    contracts.check_cloud(cloud, kind=an_instance_type(), now=clock.now, pass_time=pass_time)


def test_the_engine(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    settings, open_bare = Settings(), plugins.load("boa.engines", "bare")
    contracts.check_engine(lambda: open_bare(settings, tmp_path, None, None), folder=work)


def test_the_notifier(tmp_path: Path) -> None:
    file = tmp_path / "told"
    contracts.check_notifier(
        plugins.load("boa.notifiers", "file"),
        str(file),
        lambda: file.read_text(encoding="utf-8").splitlines(),
    )
