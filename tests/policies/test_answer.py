"""The answer of a policy: reasons made on demand, and empty defaults."""

from __future__ import annotations

from dataclasses import MISSING, fields
from inspect import signature

import pytest

from boa_daemon.testing import a_job
from policies.answer import Allocation, NodePrices, Reasons
from policies.model import Job
from policies.online.node_prices import WholeNodePrices


def test_reasons_are_made_only_when_read() -> None:
    """Each read makes one sentence; an unknown job raises `KeyError`."""
    asked: list[str] = []

    def say(job: Job) -> str:
        asked.append(job.id)
        return f"{job.id} waits"

    jobs = [a_job("a"), a_job("b")]
    reasons = Reasons(jobs=jobs, say=say)
    assert (list(reasons), len(reasons), asked) == (["a", "b"], 2, [])
    assert (reasons["b"], reasons["b"], asked) == ("b waits", "b waits", ["b", "b"])
    with pytest.raises(KeyError):
        reasons["c"]


def test_reading_a_reason_does_not_change_equality() -> None:
    """The index of jobs by name is neither compared nor shown, and the constructor does not accept it."""
    jobs, say = [a_job("a")], str
    asked, fresh = Reasons(jobs=jobs, say=say), Reasons(jobs=jobs, say=say)
    assert asked["a"] == str(jobs[0])
    assert asked == fresh
    assert "_by_name" not in repr(asked)
    with pytest.raises(TypeError):
        Reasons(jobs=jobs, say=say, _by_name={})  # type: ignore[call-arg]


def test_an_allocation_of_widths_alone_has_empty_defaults() -> None:
    """No nodes and no ceiling are set, and no job is in `stay`, `exact`, `order` or `compact`."""
    quiet = Allocation(widths={})
    found = {each.name: getattr(quiet, each.name) for each in fields(Allocation) if each.name != "widths"}
    nobody: frozenset[str] = frozenset()
    assert found == {
        "nodes": None,
        "accrual": None,
        "order_rule": "",
        "reasons": {},
        "memory": None,
        "node_prices": None,
        "stay": nobody,
        "exact": nobody,
        "order": (),
        "compact": nobody,
        "most_usd_per_hour": None,
        "above_ceiling": "use",
    }
    assert next(each for each in fields(Allocation) if each.name == "reasons").default is MISSING
    with pytest.raises(TypeError):
        quiet.reasons["a"] = "never"  # type: ignore[index]


def test_whole_node_prices_have_the_signatures_of_their_protocol() -> None:
    """Two attributes are properties; all others are methods with the same parameters."""
    said = {name: each for name, each in vars(NodePrices).items() if not name.startswith("_")}
    assert {name for name, each in said.items() if isinstance(each, property)} == {
        "boot_hours",
        "knows_messages",
    }
    for name, each in said.items():
        if not isinstance(each, property):
            mine = [(one.name, one.kind) for one in signature(each).parameters.values()]
            theirs = signature(getattr(WholeNodePrices, name)).parameters.values()
            assert mine == [(one.name, one.kind) for one in theirs]
