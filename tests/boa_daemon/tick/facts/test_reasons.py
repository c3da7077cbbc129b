"""The list of reason codes is closed: code, explanations and reference contain exactly these codes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from drafts import a_plan

import boa_daemon
from boa_daemon.testing import ManualClock, a_job, a_state
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.explain.explain import explain_job
from boa_daemon.tick.facts.reasons import (
    JOB_REASON_TEXTS,
    SENTENCES,
    WAIT_REASON_TEXTS,
    CapCode,
    HeldCode,
    JobReason,
    WaitReason,
)
from policies.model import Width

PACKAGE = Path(boa_daemon.__file__).parent
DOCS = PACKAGE.parent / "docs" / "reference" / "reason-codes.md"
REASONS = {
    str(code): said
    for table in (JOB_REASON_TEXTS, WAIT_REASON_TEXTS, SENTENCES)
    for code, said in table.items()
}
"""Every code and what it says."""
LISTS = {"reasons.py", "explain.py"}
"""Where codes are explained; a code that stands nowhere else is said by nobody."""


def literals(kind: Any) -> Iterator[str]:
    """Yield the strings of a type made of literals."""
    for found in get_args(kind):
        if isinstance(found, str):
            yield found
        else:
            yield from literals(found)


def said_in_the_code() -> set[str]:
    """Return every string constant of the modules that may use codes, without type definitions."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name in LISTS:
            continue
        tree = ast.parse(path.read_text())
        defined = {
            id(node)
            for statement in tree.body
            if isinstance(statement, ast.AnnAssign) and getattr(statement.annotation, "id", "") == "TypeAlias"
            for node in ast.walk(statement)
        }
        found |= {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in defined
        }
    return found


def test_the_tables_contain_exactly_the_codes_of_the_types() -> None:
    """Each of the three tables has the codes of one type."""
    assert set(WAIT_REASON_TEXTS) == set(literals(WaitReason))
    assert set(JOB_REASON_TEXTS) == set(literals(JobReason))
    assert set(SENTENCES) == set(literals(HeldCode)) >= set(literals(CapCode))
    assert set(REASONS) == {*WAIT_REASON_TEXTS, *JOB_REASON_TEXTS, *SENTENCES}


def test_every_code_is_used_in_some_module() -> None:
    """A code that no module uses any more must leave the list."""
    assert set(REASONS) - said_in_the_code() == set()


def test_the_reference_lists_every_code_with_its_text() -> None:
    """The page has one row for each code, with the same text."""
    rows = {line for line in DOCS.read_text().splitlines() if line.startswith("| `")}
    tables = (WAIT_REASON_TEXTS, JOB_REASON_TEXTS, SENTENCES)
    assert rows == {f"| `{code}` | {said} |" for table in tables for code, said in table.items()}


@pytest.mark.parametrize("reason", sorted(WAIT_REASON_TEXTS))
def test_every_wait_reason_has_its_own_explanation(reason: WaitReason) -> None:
    """No reason gives the explanation of `nodes-to-come`."""
    plan = a_plan(widths={"a": Width("gpu", 4)}, slots={}, waiting={"a": reason})
    other = a_plan(widths={"a": Width("gpu", 4)}, slots={}, waiting={"a": "nodes-to-come"})
    said = explain_job(a_state(a_job()), plan, "a")
    assert (said == explain_job(a_state(a_job()), other, "a")) == (reason == "nodes-to-come")


def test_a_daemon_uses_only_codes_of_the_list(tmp_path: Path) -> None:
    """The run has a small daily cap, two users, and jobs that end, wait and are cancelled."""
    settings = {
        "budget": {"usd_per_hour": 4.0, "usd_per_day_cap": 30.0, "max_instances": 2},
        "cloud": {"boot_seconds": 60.0},
        "users": {"bob": {"usd_per_day_cap": 0.5}},
    }
    clock, said = ManualClock(1_800_000_000.0), set[str]()
    play = DaemonInAFolder(tmp_path, clock, settings)
    for user in ("ann", "bob"):
        names = play.service.submit(
            [job_content(f"{user}{n}", hours=0.5, max_gpus=4) for n in range(6)], user=user
        )
    said.add(play.service.explain(names["jobs"][0])["reason"])
    for number in range(240):
        play.daemon.tick()
        if number == 20:
            play.service.cancel(names["jobs"][-1], user="bob", is_admin=False)
        clock.instant += 60.0
        if number % 4:
            continue
        for row in play.service.jobs()["jobs"]:
            said.add(play.service.explain(row["id"])["reason"])
            said.add(row["waits_for"] or "running")
    for decision in play.service.decisions(limit=1000)["decisions"]:
        said |= {held["code"] for held in decision["held"]} | set(decision["waiting"])
    play.close()
    assert said - set(REASONS) == set()
    assert {"new", "running", "finished", "cancelled", "user-day-cap"} <= said
