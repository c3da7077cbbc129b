"""What `boa status` and its neighbours print: what is wrong first, and text of others as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from boa_daemon.cli.common import daemon_status
from boa_daemon.cli.common.daemon_status import cost, instances, release_everything, show_live_plan, status
from boa_daemon.cli.common.output import OutputFormat
from boa_daemon.errors import PARTLY_DONE

NOW = 1_800_000_000.0
WELL: dict[str, Any] = {
    "as_of": NOW,
    "now": NOW,
    "fault": "",
    "is_observing": False,
    "is_down": False,
    "notes": [],
}
FIGURES = {"spent_usd": 2.0, "cap_usd": None, "forecast_usd": 9.0}
TICKED: dict[str, Any] = {
    **WELL,
    "tick": 5,
    "nodes": 2,
    "max_instances": None,
    "gpus": 8,
    "gpus_used": 3,
    "running": 1,
    "waiting": 4,
    "budget_usd_per_hour": 10.0,
    "usd_per_hour": 4.0,
    "books": {"day": FIGURES, "month": {**FIGURES, "cap_usd": 50.0}},
    "held": [],
}
GATE: dict[str, Any] = {
    "is_up": True,
    "fault": "",
    "policy": "srsf-1",
    "nics": 4,
    "nics_ordered": 1,
    "jobs": 1,
}


def answers(monkeypatch: pytest.MonkeyPatch, **documents: Any) -> None:
    """Let the daemon answer each question with these documents; a list is used up one by one."""

    def answer(document: Any) -> Any:
        return lambda **_: document.pop(0) if isinstance(document, list) else document

    @contextmanager
    def a_client(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(**{name: answer(document) for name, document in documents.items()})

    monkeypatch.setattr(daemon_status, "a_client", a_client)


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **document: Any) -> str:
    """Return the status of a daemon in words, without the lines of the table."""
    monkeypatch.setenv("COLUMNS", "200")
    answers(monkeypatch, status={**TICKED, **document})
    status()
    return " ".join(capsys.readouterr().out.split())


def test_a_daemon_that_is_well_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its figures, a cap only where there is one."""
    text = printed(monkeypatch, capsys)
    for said in (
        "state well",
        "nodes 2 of any number, 3 of 8 GPUs in use",
        "jobs 1 running, 4 waiting",
        "burn rate $4.00/hour; budget $10.00 on average",
        "this day $2.00; at this rate $9.00 at its end",
        "this month $2.00 of $50.00; at this rate $9.00 at its end",
    ):
        assert said in text


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"fault": "the disk [/x] is full", "is_observing": True},
            "state the disk [/x] is full, observing only",
        ),
        ({"is_down": True}, "down: nothing is started until `boa down --resume`"),
        ({"stopped_nodes": 2}, "in use, 2 stopped"),
        ({"held": ["job a: [b] waits"]}, "held back job a: [b] waits"),
        ({"notes": ["see [/etc]"]}, "note see [/etc]"),
        (
            {"gate": {**GATE, "is_up": False, "fault": "[/run] is no folder"}},
            "gate [/run] is no folder; jobs send",
        ),
        ({"gate": {**GATE, "is_up": False}}, "gate starting; jobs send without asking"),
        ({"gate": {"is_up": True, "fault": "", "policy": "srsf-1"}}, "gate srsf-1, busy"),
        (
            {"gate": {**GATE, "ungated": list("abcdef")}},
            "1 of 4 links ordered, 1 job asking; without asking: a, b, c, d, e …",
        ),
        ({"why_no_gate": "no [port]"}, "gate off: no [port]; jobs send without asking"),
        (
            {"fact_ages_seconds": {"prices": 60.0, "nodes": 7200.0, "quotas": None}},
            "oldest fact: nodes, 2.00 h old; not known: quotas",
        ),
        (
            {"ends": {"jobs": 2, "at": NOW + 3600.0, "high": NOW + 7200.0, "usd": 5.0}},
            "2 jobs in 1.00 h (2.00 h if jobs are long), for $5.00 more",
        ),
    ],
)
def test_what_is_special_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], document: dict[str, Any], said: str
) -> None:
    """Brackets in words of others are no markup."""
    assert said in printed(monkeypatch, capsys, **document)


def test_the_likeliest_missed_dates_come_first_and_five_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are in the answers of their jobs."""
    dates = {f"j{number}": {"at": NOW, "probability": number / 10.0} for number in range(9)}
    text = printed(monkeypatch, capsys, dates=dates)
    assert text.index("j0 by") < text.index("j4 by")
    assert "j5 by" not in text


def test_an_instance_shows_what_it_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it stands in the network only if that is known of some."""
    monkeypatch.setenv("COLUMNS", "200")
    row = {
        "id": "n1",
        "instance_type": "m",
        "tiers": [],
        "phase": "ready",
        "jobs": [],
        "launched_at": NOW - 60.0,
    }
    row |= {"usd_per_hour": 4.0, "usd": 1.5}
    answers(
        monkeypatch,
        instances=[{"as_of": NOW, "instances": rows} for rows in ([], [row], [{**row, "tiers": ["z", "s"]}])],
    )
    for there, away in (
        ("No instances.", "under"),
        ("n1 m ready - 1.0 min $4.00 $1.50", "under"),
        ("n1 m s ready", "-z"),
    ):
        instances()
        text = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert there in text
        assert away not in text


def test_costs_add_up_and_name_the_cap(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name is no markup."""
    document = {
        "as_of": NOW,
        "since": 0.0,
        "rows": [{"name": "[/a]", "usd": 2.0}],
        "usd": 2.0,
        "books": TICKED["books"],
    }
    answers(monkeypatch, cost=document)
    cost()
    text = " ".join(capsys.readouterr().out.split())
    assert "[/a] $2.00" in text
    assert "in all $2.00" in text
    assert "this day: at the present rate $9.00 at its end; no cap" in text
    assert "this month: at the present rate $9.00 at its end; cap $50.00" in text


def test_a_live_plan_says_that_nothing_was_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when nothing would change."""
    act = {"kind": "launch", "target": "m", "reason": "8 GPUs [planned]"}
    plans = [{"as_of": NOW, "actions": acts, "held": [], "waiting": {"a": "x"}} for acts in ([act], [])]
    answers(monkeypatch, plan=plans)
    show_live_plan(None, None, OutputFormat.table)
    assert "launch m: 8 GPUs [planned]\nNothing was started. 1 job would wait." in capsys.readouterr().out
    show_live_plan(None, None, OutputFormat.table)
    assert "Nothing would change." in capsys.readouterr().out


def test_going_down_waits_until_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """If something is, the exit code says so; resuming waits for nothing."""
    monkeypatch.setattr(daemon_status.time, "sleep", lambda _seconds: None)

    def release(*left: int, resume: bool = False, wait_seconds: float = 60.0) -> None:
        rows = [{"instances": ["n"] * count} for count in left]
        answers(monkeypatch, down={"as_of": NOW}, instances=rows, cost={"usd": 1.0})
        release_everything(
            resume=resume, wait_seconds=wait_seconds, config=None, socket=None, form=OutputFormat.table
        )
        assert rows == []

    release(2, 1, 0)
    release(2, resume=True)
    with pytest.raises(typer.Exit) as found:
        release(2, wait_seconds=0.0)
    assert found.value.exit_code == PARTLY_DONE
