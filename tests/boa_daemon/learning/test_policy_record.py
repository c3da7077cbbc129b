"""`learning/policy_record.py`: a policy that is stored, and built again exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from boa_daemon.learning import policy_record
from boa_daemon.learning.policy_record import DOWN_POLICY, PolicyRecord
from boa_daemon.learning.width_trials import ExploringAllocator
from boa_daemon.testing import a_class, a_job, a_problem, an_instance_type, rules
from boa_daemon.tick.facts.codec import dumps, loads
from policies.errors import PolicyError
from policies.model import Budget
from policies.online.best_effort import Account
from policies.placement.lwf import LeastWorkloadFirst
from policies.registry import DEFAULT_KAPPA, PolicyOptions, Site

BUDGET = Budget(amount=20.0)
SITE = Site(
    problem=a_problem(a_class(arrivals_per_hour=0.1), budget=BUDGET),
    budget=BUDGET,
    instance_types={"gpu": an_instance_type()},
)


def a_record(**changes: Any) -> PolicyRecord:
    """Return the record of the fixed plan."""
    plain = PolicyRecord(name="boa", options=PolicyOptions(), placer="lwf", site=SITE, rules=rules())
    return replace(plain, **changes)


FULL = {"tries": {"a": (4, 60.0, "to learn")}, "kappa": DEFAULT_KAPPA + 1}


@pytest.mark.parametrize("changes", [{}, FULL, {"name": DOWN_POLICY}])
def test_a_record_comes_back_from_its_document(changes: dict[str, Any]) -> None:
    """Through the codec; what is usual is not written, so that old documents keep their hash."""
    record = a_record(**changes)
    found = PolicyRecord.of(loads(dumps(record.document)))
    assert found.document == record.document
    assert found.hash == record.hash
    assert (found.kappa, dict(found.tries), found.best_effort) == (record.kappa, dict(record.tries), None)
    assert {"tries", "kappa"} <= set(record.document) if changes is FULL else len(record.document) == 5


def test_another_policy_has_another_hash() -> None:
    """Each part counts."""
    each = [
        {},
        {"tries": FULL["tries"]},
        {"kappa": FULL["kappa"]},
        {"name": DOWN_POLICY},
        {"placer": "first-fit"},
    ]
    assert len({a_record(**changes).hash for changes in each}) == len(each)


def test_an_account_of_a_best_effort_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the policy is built by it."""
    account = Account(budget=5.0)
    seen: list[object] = []

    def build(name: str, site: Site, options: PolicyOptions, *, account: object) -> object:
        seen.append((name, account))
        return "built"

    monkeypatch.setattr(policy_record, "build_policy", build)
    record = a_record(best_effort=account)
    assert PolicyRecord.of(record.document).best_effort is account
    assert (record.built, record.built, seen) == ("built", "built", [("boa", account)])


def test_after_boa_down_no_job_holds_anything() -> None:
    """The reason is the order."""
    allocator, _, _ = a_record(name=DOWN_POLICY).build()
    found = allocator.allocate([a_job("a"), a_job("b")], now=0.0)
    assert (found.widths, found.reasons["a"]) == ({}, "`boa down` was ordered")


def test_jobs_that_try_a_width_are_allocated_by_it() -> None:
    """Everybody else as without tries; the trial may waste what was said."""
    plain, _, _ = a_record().build()
    trying, _, _ = a_record(tries=FULL["tries"]).build()
    assert not isinstance(plain, ExploringAllocator)
    assert isinstance(trying, ExploringAllocator)
    one = trying.tries["a"]
    assert (one.gpus, one.gpu_seconds, one.reason) == (4, 60.0, "to learn")


def test_the_placer_has_its_kappa_and_the_rules_follow_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy may know better which rules fit it."""
    record = a_record(kappa=DEFAULT_KAPPA + 1)
    seen: list[object] = []
    monkeypatch.setattr(
        type(record.rules), "under", lambda self, built: seen.append(built) or "rules of the policy"
    )
    _, placer, found = record.build()
    assert isinstance(placer, LeastWorkloadFirst)
    assert placer == LeastWorkloadFirst(kappa=DEFAULT_KAPPA + 1)
    assert (found, seen) == ("rules of the policy", [record.built])


def test_an_unknown_policy_is_an_error_when_it_is_built() -> None:
    """A record of a policy of a plug-in that is gone can be read."""
    record = a_record(name="gone")
    assert record.hash
    with pytest.raises(PolicyError, match="gone"):
        record.build()
