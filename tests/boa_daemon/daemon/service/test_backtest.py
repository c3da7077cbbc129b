"""Backtest: the daemon's recorded jobs become a simulation, which is compared with what happened."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_site import a_day, served
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.daemon.service.backtest import compare_with_past, past_simulation, scale_of
from boa_daemon.errors import InputError
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.planning.scenario_runs import run_scenario
from boa_daemon.planning.whatif import Scenario
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder
from boa_daemon.traces.reader import read_trace
from policies.model import JobClass, Phase, Width
from policies.speedup import Table

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def play() -> Iterator[DaemonInAFolder]:
    """Yield a daemon with three recorded hours.

    Its folder has a short path because the paths of sockets are limited.
    """
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        found = a_day(Path(name), hours=3.0, now=NOW)
        yield found
        found.close()


@pytest.fixture(scope="module")
def answer(play: DaemonInAFolder) -> dict[str, Any]:
    """Return what `boa whatif --history` answers about the last day."""
    with tempfile.TemporaryDirectory(prefix="boa") as name, served(play, Path(name)) as site:
        words = ["whatif", "--history", "1", "--socket", str(site.socket), "--change", "budget=25/h"]
        shown = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        said = CliRunner().invoke(app, [*words, "--json"])
    assert (shown.exit_code, said.exit_code) == (0, 0), shown.output + said.output
    found: dict[str, Any] = json.loads(said.stdout)
    return found | {"shown": shown.stdout}


def test_the_replayed_history_is_close_to_the_real_one(answer: dict[str, Any], play: DaemonInAFolder) -> None:
    """The replay has the same jobs; its mean completion time and spend are within 25 % of the real ones."""
    seen, (base, _) = answer["happened"], answer["scenarios"]

    over = [job for job in play.storage.queue.jobs(limit=1000) if job.status == "finished"]
    waited = [(job.ended_at or 0.0) - job.arrived_at for job in over]
    assert seen["jobs"] == base["jobs"] == len(over)
    assert seen["left_out"]["not over"] == len(play.storage.queue.active)
    assert seen["mean_jct_hours"] == pytest.approx(sum(waited) / len(waited) / 3600.0)
    assert 0.75 < seen["replayed_over_seen_jct"] < 1.25
    assert 0.75 < seen["replayed_over_seen_spend"] < 1.25


def test_the_replay_has_the_sites_commitments(play: DaemonInAFolder) -> None:
    """They are on the replay's clock; what happened counts them, and the replay's nodes cost less by them."""
    document = play.service.past(days=1.0)
    (level,) = past_simulation(document).commitments.levels
    base = {"mean_jct_hours": 1.0, "spend": 1.0}

    assert level.cost.usd_per_hour == 8.5
    assert level.rates == {"g5.12xlarge": pytest.approx(0.72 * 5.672)}
    alone = compare_with_past(document | {"commitments": []}, base)["spend"]
    hours = (max(job[4] for job in document["jobs"]) - min(job[1] for job in document["jobs"])) / 3600.0
    assert compare_with_past(document, base)["spend"] == pytest.approx(alone + 8.5 * hours)
    row = run_scenario(past_simulation(document), Scenario(name="base", budget="42/h"))
    assert row["spend"] > 8.5 * hours


def test_scenarios_are_compared_with_the_replayed_base(answer: dict[str, Any]) -> None:
    """Differences are given in the JSON and in the printed text."""
    base, cheaper = answer["scenarios"]

    assert base["budget"] == "42/h"
    assert cheaper["spend"] < base["spend"]
    assert cheaper["mean_jct_hours_more"] == cheaper["mean_jct_hours"] - base["mean_jct_hours"]
    assert f"${base['spend'] - cheaper['spend']:,.2f} less." in answer["shown"]
    assert f"where ${answer['happened']['spend']:,.2f} were spent" in answer["shown"]


def test_job_sizes_are_recovered_from_recorded_hours_widths_and_speeds(play: DaemonInAFolder) -> None:
    """The mean ratio of recovered scale to submitted scale is 1 within 10 %."""
    document = play.service.past(days=1.0)
    stated = {job.id: float(job.content["scale"]) for job in play.storage.queue.jobs(limit=1000)}
    ratios = [scale / stated[name] for name, _, _, scale, _ in document["jobs"]]

    assert sum(ratios) / len(ratios) == pytest.approx(1.0, abs=0.1)


def test_a_history_without_finished_jobs_is_refused(play: DaemonInAFolder) -> None:
    """The error counts the jobs that were left out."""
    document = play.service.past(days=1.0) | {"jobs": []}

    with pytest.raises(InputError, match=r"no job of the last 1 days is over.*Left out: \d+ jobs not over"):
        past_simulation(document)


def test_trace_history_writes_the_same_trace_and_classes_as_the_replay(
    play: DaemonInAFolder, tmp_path: Path
) -> None:
    """`boa trace history` writes a trace and a class file with the daemon's machines and prices."""
    with tempfile.TemporaryDirectory(prefix="boa") as name, served(play, Path(name)) as site:
        words = ["trace", "history", "--days", "1", "--socket", str(site.socket), "--out", str(tmp_path)]
        said = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    told = json.loads(said.stdout)
    replayed = past_simulation(play.service.past(days=1.0))
    trace, file = read_trace(tmp_path / "trace.csv"), load_problem(tmp_path / "classes.yaml")

    assert trace == replayed.trace
    assert told["jobs"] == len(trace.jobs)
    assert told["dropped"] == {"not over": len(play.storage.queue.active)}
    (machine,), (own,) = file.instance_types.values(), replayed.instance_types.values()
    assert (machine.gpu_type, machine.gpus) == (own.gpu_type, own.gpus)
    assert machine.usd_per_hour == pytest.approx(own.usd_per_hour)
    assert machine.link_gigabits_per_second == own.link_gigabits_per_second
    for found, planned in zip(file.problem.classes, replayed.problem.classes, strict=True):
        assert found.name == planned.name
        assert found.size_gpu_hours == pytest.approx(planned.size_gpu_hours, rel=1e-5)
        assert found.arrivals_per_hour == pytest.approx(planned.arrivals_per_hour, rel=1e-5)
        assert found.startup_hours == pytest.approx(planned.startup_hours, rel=1e-5)


def test_the_scale_of_a_job_with_phases_is_found_when_its_width_changes() -> None:
    """Twice the class's work: 4 h on 1 GPU, then 2 GPUs end phase 1 at speed 2 and run phase 2 at 1.25."""
    phases = tuple(
        Phase(size_gpu_hours=size, speedups={"gpu": Table(gpus=(1, 2), speeds=(1.0, speed))})
        for size, speed in ((3.0, 2.0), (5.0, 1.25))
    )
    job_class = JobClass(name="two", phases=phases)
    stretches = [(4.0, Width("gpu", 1)), ((6.0 - 4.0) / 2.0 + 10.0 / 1.25, Width("gpu", 2))]

    assert scale_of(stretches, job_class) == pytest.approx(2.0)
