"""What people report of programs that rent on AWS, as hooks between a daemon and its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_days import Day, Hook, a_day

from boa_daemon.backends.aws.client.errors import CallFailed

WAIT_MINUTES, HEAL_MINUTES = 8.0, 20.0
RUN, LIST = "ec2:RunInstances", "ec2:DescribeInstances"
Plain = Callable[[], Any]


@dataclass(frozen=True)
class Report:
    """What a hook does to calls, and what is expected: the job `runs` meanwhile, or is told the `cure`."""

    hook: Hook
    cure: str = ""
    runs: bool = True
    heals: float = HEAL_MINUTES


def refuses(
    code: str,
    said: str,
    *,
    cure: str = "",
    zone: str = "",
    status: int = 400,
    heals: float = HEAL_MINUTES,
) -> Report:
    """Return the report of launches that are refused, in one zone or in all."""

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        if operation == RUN and (not zone or zone in place(arguments)) and not arguments.get("DryRun"):
            raise CallFailed(RUN, code, said, http_status=status)
        return plain()

    return Report(hook, cure, runs=bool(zone), heals=heals)


def fails(*operations: str, code: str, said: str, status: int = 400) -> Report:
    """Return the report of other calls that fail: the job runs all the same."""

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        if operation in operations:
            raise CallFailed(operation, code, said, http_status=status)
        return plain()

    return Report(hook)


def place(arguments: dict[str, Any]) -> str:
    """Return the zone of a launch; the zones of the default subnets are known by their order."""
    subnet = arguments.get("SubnetId", "")
    return str(ZONES.get(subnet, arguments.get("Placement", {}).get("AvailabilityZone", "")))


ZONES: dict[str, str] = {}


def without(*keys: str) -> Report:
    """Return the report of listings that lack parts of an instance, as soon after a launch."""

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        answer = plain()
        if operation == LIST:
            for instance in (each for one in answer["Reservations"] for each in one["Instances"]):
                for key in keys:
                    instance.pop(key, None)
        return answer

    return Report(hook)


def done_and_refused(code: str, status: int) -> Report:
    """Return the report of a launch that happens although its answer refuses it, once."""
    done: list[str] = []

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        answer = plain()
        if operation == RUN and not done and not arguments.get("DryRun"):
            done.append(code)
            raise CallFailed(RUN, code, "as said", http_status=status)
        return answer

    return Report(hook)


def empty_listings() -> Report:
    """Return the report of listings that are empty for a while, as of an index that lags."""
    seen: list[str] = []

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        answer = plain()
        if operation == LIST and len(seen) < 3:
            seen.append("")
            return answer | {"Reservations": []}
        return answer

    return Report(hook)


def everything(code: str, said: str, *, cure: str, status: int = 0) -> Report:
    """Return the report of calls that all fail, as without credentials or a network: the job waits."""

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        del arguments, plain
        raise CallFailed(operation, code, said, http_status=status)

    return Report(hook, cure, runs=False)


def at_first(operation: str, code: str, said: str, *, times: int, status: int) -> Report:
    """Return the report of an operation that fails so often, and then works."""
    failed: list[str] = []

    def hook(asked: str, arguments: dict[str, Any], plain: Plain) -> Any:
        if asked == operation and len(failed) < times and not arguments.get("DryRun"):
            failed.append(code)
            raise CallFailed(asked, code, said, http_status=status)
        return plain()

    return Report(hook)


def listed_as(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Report:
    """Return the report of listings that are changed on their way."""

    def hook(operation: str, arguments: dict[str, Any], plain: Plain) -> Any:
        answer = plain()
        return change(answer) if operation == LIST else answer

    return Report(hook)


def holds(folder: Path, report: Report) -> None:
    """One job runs all the time; the other runs within minutes, or once what it is told is mended."""
    with a_day(folder) as day:
        _note_zones(day)
        (first,) = day.rig.fake.live()
        day.hook = report.hook
        day.submit(hours=0.1)
        day.ticks(WAIT_MINUTES)
        statuses = day.statuses()
        assert statuses[0] == "running"
        if report.runs:
            assert statuses[1] in ("running", "finished"), (statuses, _said(day))
        else:
            assert statuses[1] not in ("running", "finished", "failed")
            assert any(report.cure in each for each in _said(day)), _said(day)
        day.hook = None
        day.ticks(report.heals)
        assert day.statuses() == ["running", "finished"], _said(day)
        assert [life.id for life in day.rig.fake.live()] == [first.id]
        assert day.launched() == 2
        assert day.play.storage.store.unsettled() == []
        ended = sum((life.ended_at or 0.0) - life.launched_at for life in day.rig.fake.history()[1:])
        assert day.charged() == pytest.approx(ended / 3600.0 * 1.032918, rel=0.02)


def _note_zones(day: Day) -> None:
    by_zone = day.rig.fake.backend("us-east-1").subnets.values()
    ZONES.update({one.id: one.availability_zone for each in by_zone for one in each.values()})


def _said(day: Day) -> list[str]:
    """Return everything that people can read about the second job and the site."""
    return [day.play.service.explain(day.jobs[1])["text"], *day.notes(), *day.alerts()]
