"""The policy is asked once, for the widths of all jobs that are not set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from drafts import PRICES, a_draft, gpus

from boa_daemon.testing import a_job, a_state
from boa_daemon.tick.stages.widths.ask_policy import ask_policy
from policies.answer import Allocation
from policies.model import Job, Money

ANSWER = Allocation(widths=gpus(b=2), reasons={"b": "why"}, memory=(1.0,), node_prices=PRICES)


@dataclass
class Asked:
    """An allocator that records its arguments."""

    seen: list[Any] = field(default_factory=list)

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Record the arguments and return the answer."""
        self.seen = [[job.id for job in jobs], now, money]
        return ANSWER


class WithoutMoney(Asked):
    """An allocator that does not read money."""

    reads_money = False


@pytest.mark.parametrize("allocator", [Asked(), WithoutMoney()])
def test_the_policy_gets_the_jobs_that_are_not_set_aside_and_money_if_it_reads_it(
    allocator: Asked,
) -> None:
    """The plan contains the policy's whole answer."""
    state = a_state(a_job("a"), a_job("b"), now=7.0, books_opened_at=0.0)
    found = ask_policy(state, a_draft(allocator=allocator, set_aside={"a": "resting"}))

    jobs, now, money = allocator.seen
    assert (jobs, now) == (["b"], 7.0)
    assert isinstance(money, Money) == (type(allocator) is Asked)
    assert found.allocation is ANSWER
    plan = found.plan
    assert (plan.jobs.widths, plan.jobs.reasons, plan.memory) == (
        ANSWER.widths,
        ANSWER.reasons,
        ANSWER.memory,
    )
    assert plan.node_prices is PRICES
