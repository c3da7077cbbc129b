"""Metrics of a day: sums agree, labels are bounded, and names follow the conventions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_site import a_day
from prometheus_client.parser import text_string_to_metric_families

from boa_daemon.daemon.money.costs import FIXED_ROW
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonInAFolder]:
    found = a_day(tmp_path_factory.mktemp("day"), hours=6.0, now=NOW)
    yield found
    found.close()


@pytest.fixture(scope="module")
def values(play: DaemonInAFolder) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return every sample of a scrape."""
    text = play.daemon.metrics.text().decode()
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def total(values: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str) -> float:
    """Return the sum of a metric over all labels."""
    return sum(value for (found, _), value in values.items() if found == name)


def test_spend_metrics_add_up_for_every_label(play: DaemonInAFolder, values: dict) -> None:  # type: ignore[type-arg]
    """By state and market they sum to the spend on nodes; by class and user to work and restarts."""
    rows = play.service.cost(by="class", since=0.0)["rows"]
    spent = sum(row["usd"] for row in rows if row["name"] != FIXED_ROW)
    assert total(values, "boa_state_spend_dollars_total") == pytest.approx(spent, rel=0.05)
    assert total(values, "boa_market_spend_dollars_total") == pytest.approx(spent, rel=0.05)
    by_class = total(values, "boa_class_spend_dollars_total")
    assert by_class == pytest.approx(total(values, "boa_user_spend_dollars_total"))
    by_state = [
        values.get(("boa_state_spend_dollars_total", frozenset({("state", state)})), 0.0)
        for state in ("work", "restart")
    ]
    assert by_class == pytest.approx(sum(by_state), rel=0.01)


def test_gpu_and_node_metrics_equal_those_of_the_last_tick(play: DaemonInAFolder, values: dict) -> None:  # type: ignore[type-arg]
    """GPUs and nodes are summed over all their states."""
    picture = play.daemon.standing.picture
    assert picture is not None
    assert total(values, "boa_gpus") == picture.gpus
    assert total(values, "boa_fleet_nodes") == picture.nodes
    assert total(values, "boa_fleet_dollars_per_hour") == pytest.approx(picture.usd_per_hour)
    assert values["boa_budget_dollars_per_hour", frozenset()] == 42.0


def test_every_job_and_every_boot_is_counted_once(play: DaemonInAFolder, values: dict) -> None:  # type: ignore[type-arg]
    """Waits count first starts, completions count finished jobs, boots count nodes that became ready."""
    jobs = play.storage.queue.jobs(limit=10_000)
    started = [job for job in jobs if job.first_started_at is not None]
    finished = [job for job in jobs if job.status == "finished"]
    assert abs(total(values, "boa_job_wait_seconds_count") - len(started)) <= sum(bool(j.slots) for j in jobs)
    assert total(values, "boa_job_completion_seconds_count") == len(finished)
    mean = sum(job.ended_at - job.arrived_at for job in finished if job.ended_at) / len(finished)
    counted = total(values, "boa_job_completion_seconds_sum") / len(finished)
    assert counted == pytest.approx(mean)
    ready = [one for one in play.storage.queue.past_instances(0.0) if one.ready_at is not None]
    assert total(values, "boa_node_boot_seconds_count") == pytest.approx(len(ready), abs=3)
    assert total(values, "boa_job_restarts_total") == sum(max(job.generation - 1, 0) for job in jobs)


def test_metric_names_follow_the_conventions(play: DaemonInAFolder) -> None:
    """Names are lower case, start with `boa_`, have no abbreviated unit, and have a description."""
    families = list(text_string_to_metric_families(play.daemon.metrics.text().decode()))
    assert len(families) > 30
    for family in families:
        assert family.name.startswith("boa_")
        assert family.name == family.name.lower()
        assert family.documentation
        assert not family.name.endswith(("_ms", "_usd", "_sec"))


def test_no_job_or_node_id_is_a_label_value(play: DaemonInAFolder) -> None:
    """Otherwise the number of time series would grow without bound."""
    text = play.daemon.metrics.text().decode()
    names = {job.id for job in play.storage.queue.jobs(limit=10_000)} | set(play.storage.queue.instances)
    assert [name for name in names if f'"{name}"' in text] == []


def test_the_page_lists_every_metric(play: DaemonInAFolder) -> None:
    """`docs/reference/metrics.md` lists each exported metric and no other one."""
    page = (Path(__file__).resolve().parents[4] / "docs/reference/metrics.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(boa_[a-z_]+)", page, re.MULTILINE))
    families = text_string_to_metric_families(play.daemon.metrics.text().decode())
    assert listed == {one.name for one in families if not one.name.endswith("_created")}
