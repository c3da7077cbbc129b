"""Watch whether the budget pays for the load: begin a best effort when it does not, and end it later.

A best effort (`policies.online.best_effort`) begins when the least feasible spend rises above the budget:
after a lower budget, a higher price, or a newly learnt load. It ends when the budget is `MARGIN` above that
least spend, or at once when the settings name another, sufficient budget. So a learnt load that varies around
the budget does not switch the plan each time.

A burst is no load that goes on. Learnt rates follow each of them, while the pacing law weighs the amount of
the load against its noise (`policies.online.pacing`). So where the learnt load is above the budget and the
law's is not, no best effort begins while the narrowest widths still end the period within its tolerance.

The account opens at the beginning, with what was spent until then: overspending under another budget is not
held against the new one. The account survives a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, log

from boa_daemon.tick.facts.limits import period_of
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.units import SECONDS_PER_HOUR
from policies.errors import InfeasibleBudget
from policies.online.best_effort import Account, Shortfall
from policies.online.pacing import INNER, PERIOD, PERIOD_MONTHS, TOLERANCE
from policies.optimum.hull import TIE
from policies.registry import PolicyOptions, Site, build_policy, find_policy, shortfall_of_site

MARGIN = 1.05
"""The budget must be this many times the least feasible spend before a best effort ends by itself."""

PRICE_STEP = 1.05
"""Prices above the planned ones are rounded to steps of this factor."""


class BudgetWatch:
    """Turn policies that the budget does not pay for into best efforts."""

    def __init__(self, account: Account | None = None) -> None:
        self.account = account
        self.shortfall: Shortfall | None = None
        self._asked: tuple[str, Site, PolicyOptions, bool] | None = None
        self._need: Shortfall | None = None

    def look(
        self,
        policy: str,
        site: Site,
        options: PolicyOptions,
        *,
        now: float,
        spent: Callable[[], float],
        memory: Sequence[float] = (),
        opened_at: float | None = None,
    ) -> Account | None:
        """Return the account of the current best effort; None if the budget pays for the policy.

        `spent` returns what was spent until now, in the unit of the budget; it is called when a best effort
        may begin. `memory` is that of the policy's last tick; the ledger was opened at `opened_at`.

        Raises:
            PolicyError: when nothing can be planned for the site at all.
        """
        budget = site.budget.amount
        goes_on = self.account is not None and self.account.budget == budget
        margin = MARGIN if goes_on else 1.0
        if self._asked != (policy, site, options, goes_on):
            self._need = _shortfall(policy, site, options, margin=margin)
            self._asked = policy, site, options, goes_on
        self.shortfall = self._need
        if self._need is not None and memory and opened_at is not None and _is_paced(policy):
            # The last number of the memory is the load over the stated one, and the need is of the learnt.
            least = self._need.least_spend * memory[-1] / site.load_over_stated
            elapsed = (now - opened_at) / SECONDS_PER_HOUR
            owed = spent() / (budget - site.covered_per_hour) - elapsed
            most = _most_owed(options, now, saved=1.0 - least / budget)
            if budget >= margin * least and owed < most * (INNER if goes_on else 1.0):
                self.shortfall = None
        if self.shortfall is None:
            self.account = None
        elif not goes_on:
            self.account = Account(budget=budget, opened_at=now, spent_before=spent())
        return self.account


def _is_paced(policy: str) -> bool:
    """Whether a policy follows the pacing law; a memory that another one left says nothing of the load."""
    return "tolerance" in find_policy(policy).options


def _most_owed(options: PolicyOptions, now: float, *, saved: float) -> float:
    """Return the debt, in hours of budget, with which a period can still end within its tolerance.

    `saved` is the part of the budget that the narrowest widths leave.
    """
    tolerance = TOLERANCE if options.tolerance is None else options.tolerance
    if options.window_hours is not None:
        return (tolerance + saved) * options.window_hours
    period = period_of(now, PERIOD_MONTHS[options.period or PERIOD])
    left, whole = period.ends_at - now, period.ends_at - period.begins_at
    return (tolerance * whole + saved * left) / SECONDS_PER_HOUR


def _shortfall(policy: str, site: Site, options: PolicyOptions, *, margin: float) -> Shortfall | None:
    """Return how far the budget is below `margin` times the policy's need; None if it is not.

    The growth of the queue is computed for BOA's cheapest widths, which then stand in for any policy.
    """
    if find_policy(policy).kind == "optimum":
        found = shortfall_of_site(site)
        return found if site.budget.amount < margin * found.least_spend * (1.0 - TIE) else None
    tighter = replace(site, budget=replace(site.budget, amount=site.budget.amount / margin))
    try:
        build_policy(policy, tighter, options)
    except InfeasibleBudget as error:
        return replace(shortfall_of_site(site), least_spend=error.least_spend)
    return None


def at_dearer_offers(site: Site, offers: Sequence[Offer]) -> Site:
    """Return the site at the cloud's current prices where they exceed the planned ones.

    They are rounded up to the next step of `PRICE_STEP`, so that a fluctuating price changes no plan.
    """
    dearer = {}
    for kind, machine in site.instance_types.items():
        mine = (o.compute_usd_per_hour for o in offers if o.instance_type == machine.name)
        # Disks and addresses add only a few percent, and pacing sees them on the bill.
        asked = [price for price in mine if price]
        if asked and min(asked) > machine.usd_per_hour:
            steps = ceil(log(min(asked) / machine.usd_per_hour) / log(PRICE_STEP) - 1e-9)
            dearer[kind] = replace(machine, usd_per_hour=machine.usd_per_hour * PRICE_STEP**steps)
    if not dearer:
        return site
    gpu_types = tuple(
        replace(gpu, usd_per_gpu_hour=dearer[gpu.name].usd_per_gpu_hour) if gpu.name in dearer else gpu
        for gpu in site.problem.gpu_types
    )
    return replace(
        site,
        problem=replace(site.problem, gpu_types=gpu_types),
        instance_types={**site.instance_types, **dearer},
    )
