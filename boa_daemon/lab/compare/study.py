"""Run a study: all cells of all cases, and the figures computed from their rows.

Ratios are paired: a rival's mean JCT over the reference's on the same jobs, world and money; over traces,
draws and orders their geometric mean with Student's t interval is taken (`comparing.comparison_summary`).
Regret is a policy's mean JCT over the bound that no policy can beat for its spend. Robustness is a policy's
JCT in another world over its JCT in the study's first world, on the same jobs and budget. Lines by trace are
of the first world unless another is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from boa_daemon.errors import BoaError
from boa_daemon.lab.compare.cells import Cell, CellResult
from boa_daemon.lab.compare.comparison_summary import Decomposition, Ratio, decomposition, ratio_of
from boa_daemon.lab.compare.run_cells import rival_cells
from boa_daemon.lab.compare.study_file import Study, StudyCase
from boa_daemon.lab.compare.tune import run_cell
from boa_daemon.tasks.tasks import Tasks
from policies.errors import PolicyError
from policies.registry import find_policy
from policies.site import PolicyKind

ALL = "all"
PARTS = ("used", "overhead", "booting", "idle")
"""The uses of rented GPU-hours: working, starting jobs, booting, idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """The row of a cell in a case, or the error that it ended with (`words`)."""

    case: StudyCase
    cell: Cell
    row: CellResult | None
    words: str = ""

    @property
    def jobs(self) -> tuple[str, int, int]:
        """The key shared by all rows on the same jobs: trace, draw and seed."""
        return self.case.trace, self.case.draw, self.cell.seed

    def to_document(self) -> dict[str, Any]:
        """Return the row or error as JSON."""
        where = {"trace": self.case.trace, "draw": self.case.draw, "world": self.case.world}
        asked = {"budget_asked": self.case.budget}
        if self.row is None:
            return where | asked | {"policy": self.cell.policy, "seed": self.cell.seed, "error": self.words}
        return where | asked | self.row.to_document() | {"regret": regret_of(self.row)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedRatios:
    """Ratios of a policy to a base over pairs: of waiting, and for robustness of spend.

    `longer` is the number of pairs that wait longer. `unpaid` is the number of pairs at unequal spend,
    because no setting of the policy reaches the base's spend.
    """

    policy: str
    world: str
    budget: str
    pairs: int
    waiting: Ratio
    longer: int
    spend: Ratio | None = None
    unpaid: int = 0

    def to_document(self) -> dict[str, Any]:
        """Return the ratios as JSON."""
        return {
            "policy": self.policy,
            "world": self.world,
            "budget": self.budget,
            "pairs": self.pairs,
            "longer": self.longer,
            "unpaid": self.unpaid,
            "waiting": self.waiting.to_document(),
            "spend": None if self.spend is None else self.spend.to_document(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRival:
    """The rival that waits least for the reference's spend; the fastest of all if none spends as little.

    `unpaid` is as in `PairedRatios`.
    """

    policy: str
    mean_jct_hours: float
    p95_jct_hours: float
    waiting: Ratio
    unpaid: int

    def to_document(self) -> dict[str, Any]:
        """Return the rival as JSON."""
        return {
            "policy": self.policy,
            "mean_jct_hours": self.mean_jct_hours,
            "p95_jct_hours": self.p95_jct_hours,
            "waiting": self.waiting.to_document(),
            "unpaid": self.unpaid,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """The reference on a trace at a budget in one world, and each rival's ratio to it.

    `parts` is the part of the rented GPU-hours by use: working, starting, booting, idle. `best` is of the
    rivals that are not a plan of BOA tuned in hindsight.
    """

    trace: str
    budget: str
    mean_jct_hours: float
    p95_jct_hours: float
    spend_over_budget: float
    regret: Ratio
    regret_with_boots: Ratio | None
    parts: Mapping[str, float]
    rivals: Mapping[str, PairedRatios]
    best: BestRival | None
    gain: Decomposition | None

    def to_document(self) -> dict[str, Any]:
        """Return the line as JSON."""
        boots = self.regret_with_boots
        return {
            "trace": self.trace,
            "budget": self.budget,
            "mean_jct_hours": self.mean_jct_hours,
            "p95_jct_hours": self.p95_jct_hours,
            "spend_over_budget": self.spend_over_budget,
            "regret": self.regret.to_document(),
            "regret_with_boots": None if boots is None else boots.to_document(),
            "parts_of_rented_gpu_hours": dict(self.parts),
            "ratios": [one.to_document() for one in self.rivals.values()],
            "best": None if self.best is None else self.best.to_document(),
            "gain": None if self.gain is None else self.gain.to_document(),
        }


def run_study(study: Study, tasks: Tasks, *, on_found: Callable[[CaseRow], None]) -> list[CaseRow]:
    """Run all cells, and return their rows or errors in the order of the file."""

    def find(item: tuple[int, Cell]) -> CaseRow:
        case = study.cases[item[0]]
        try:
            return CaseRow(case=case, cell=item[1], row=run_cell(case.comparison, item[1], tasks))
        except (BoaError, PolicyError) as error:
            return CaseRow(case=case, cell=item[1], row=None, words=str(error))

    def follow(item: tuple[int, Cell], found: CaseRow) -> list[tuple[int, Cell]]:
        row = found.row
        return [] if row is None else [(item[0], c) for c in rival_cells(found.case.comparison, item[1], row)]

    begin = [(n, cell) for n, case in enumerate(study.cases) for cell in case.comparison.references()]
    places: dict[tuple[int, str, int], CaseRow] = {}
    for (number, cell), found in tasks.each(find, begin, then=follow):
        places[number, cell.policy, cell.seed] = found
        on_found(found)
    order = [study.file.reference, *study.rivals]
    return [places[key] for key in sorted(places, key=lambda key: (key[0], key[2], order.index(key[1])))]


def regret_of(row: CellResult) -> float:
    """Return a run's mean JCT over the lower bound for its spend, with GPUs rented singly and no boots."""
    return row.mean_jct_hours / row.lower_bound_mean_jct_hours


def is_below_bound(row: CellResult) -> bool:
    """Return whether a run waits less than a lower bound allows, which shows a mistake in one of them."""
    bound = max(row.lower_bound_mean_jct_hours, row.lower_bound_with_boots_mean_jct_hours or 0.0)
    return row.mean_jct_hours < bound * (1.0 - 1e-9)


def rivalry(study: Study, found: Iterable[CaseRow]) -> list[PairedRatios]:
    """Return each rival's ratios to the reference by world and budget, and over all budgets if several."""
    rows = _rows(found)
    reference = _references(study, rows)
    return [
        versus
        for world, budget, policy in _groups(study, rows, leads=False)
        for versus in _over(reference, policy, world, budget, _of(rows, world, budget, policy))
    ]


def by_trace(study: Study, found: Iterable[CaseRow], world: str | None = None) -> list[TraceLine]:
    """Return a line per trace and budget about the reference, in the first world unless one is named."""
    home = study.worlds[0] if world is None else world
    rows = [(one, row) for one, row in _rows(found) if one.case.world == home]
    reference = _references(study, rows)
    told = []
    for trace, budget in dict.fromkeys((case.trace, case.budget) for case in study.cases):
        here = [(one, row) for one, row in rows if (one.case.trace, one.case.budget) == (trace, budget)]
        own = [row for one, row in here if _leads(study, one)]
        if not own:
            continue
        rivals = {
            policy: versus
            for policy in study.rivals
            for versus in _over(reference, policy, home, budget, _of(here, home, budget, policy))
        }
        told.append(
            TraceLine(
                trace=trace,
                budget=budget,
                mean_jct_hours=fmean(row.mean_jct_hours for row in own),
                p95_jct_hours=fmean(row.p95_jct_hours for row in own),
                spend_over_budget=fmean(row.mean_usd_per_hour / row.budget for row in own),
                regret=ratio_of([regret_of(row) for row in own]),
                regret_with_boots=_regret_with_boots(own),
                parts={
                    name: fmean(getattr(row, f"gpu_hours_{name}") / row.gpu_hours_rented for row in own)
                    for name in PARTS
                },
                rivals=rivals,
                best=_best_rival(here, rivals),
                gain=_gain(study, here, rivals),
            )
        )
    return told


def _regret_with_boots(rows: Sequence[CellResult]) -> Ratio | None:
    """Return the waiting over the bound with boots; None if it was not computed for every row."""
    over = [
        row.mean_jct_hours / bound
        for row in rows
        if (bound := row.lower_bound_with_boots_mean_jct_hours) is not None
    ]
    return ratio_of(over) if len(over) == len(rows) else None


def _least(rivals: Mapping[str, PairedRatios], *kinds: PolicyKind) -> str | None:
    """Return the rival of some kinds that waits least for the same money, or else the fastest of all."""
    found = [policy for policy in rivals if find_policy(policy).kind in kinds]
    paid = [policy for policy in found if not rivals[policy].unpaid]
    return min(paid or found, key=lambda policy: rivals[policy].waiting.mean, default=None)


def _best_rival(
    here: Iterable[tuple[CaseRow, CellResult]], rivals: Mapping[str, PairedRatios]
) -> BestRival | None:
    """Return the best rival; not a plan of BOA that was tuned in hindsight."""
    policy = _least(rivals, "heuristic", "rule", "autoscaler", "fleet")
    if policy is None:
        return None
    own = [row for one, row in here if one.cell.policy == policy]
    return BestRival(
        policy=policy,
        mean_jct_hours=fmean(row.paid_jct_hours for row in own),
        p95_jct_hours=fmean(row.p95_jct_hours for row in own),
        waiting=rivals[policy].waiting,
        unpaid=rivals[policy].unpaid,
    )


def _gain(
    study: Study, here: Iterable[tuple[CaseRow, CellResult]], rivals: Mapping[str, PairedRatios]
) -> Decomposition | None:
    """Return the gain over the best fleet as elasticity and optimisation; None without a fleet or a rule."""
    fleet, rule = _least(rivals, "fleet"), _least(rivals, "rule")
    if fleet is None or rule is None:
        return None
    hours = {
        (one.cell.policy, one.jobs): row.mean_jct_hours if _leads(study, one) else row.paid_jct_hours
        for one, row in here
    }
    return decomposition(hours, study.file.reference, fleet, rule)


def _references(
    study: Study, rows: Iterable[tuple[CaseRow, CellResult]]
) -> dict[tuple[object, ...], CellResult]:
    """Return the reference's rows by the key that they share with the rivals' rows."""
    return {(one.jobs, one.case.world, one.case.budget): row for one, row in rows if _leads(study, one)}


def _over(
    reference: Mapping[tuple[object, ...], CellResult],
    policy: str,
    world: str,
    budget: str,
    rows: Iterable[tuple[CaseRow, CellResult]],
) -> list[PairedRatios]:
    """Return a rival's ratios to the reference at the same spend; empty without a pair."""
    ratios, unpaid = [], 0
    for one, row in rows:
        base = reference.get((one.jobs, one.case.world, one.case.budget))
        if base is not None:
            ratios.append(row.paid_jct_hours / base.mean_jct_hours)
            unpaid += row.equal_spend_mean_jct_hours is None
    return [replace(one, unpaid=unpaid) for one in _versus(policy, world, budget, ratios)]


def regrets(study: Study, found: Iterable[CaseRow]) -> list[PairedRatios]:
    """Return each policy's ratios to the lower bound, by world and budget."""
    rows = _rows(found)
    return [
        versus
        for world, budget, policy in _groups(study, rows, leads=True)
        for versus in _versus(
            policy, world, budget, [regret_of(row) for _, row in _of(rows, world, budget, policy)]
        )
    ]


def robustness(study: Study, found: Iterable[CaseRow]) -> list[PairedRatios]:
    """Return each policy's ratios of each further world to the first world, over all budgets."""
    rows = _rows(found)
    home = study.worlds[0]
    at_home = {
        (one.jobs, one.case.budget, one.cell.policy): row for one, row in rows if one.case.world == home
    }
    told = []
    for world, budget, policy in _groups(study, rows, leads=True):
        if world == home or (budget != ALL and len(study.budgets) > 1):
            continue
        pairs = [
            (row, base)
            for one, row in _of(rows, world, budget, policy)
            if (base := at_home.get((one.jobs, one.case.budget, one.cell.policy))) is not None
        ]
        waits = [row.mean_jct_hours / base.mean_jct_hours for row, base in pairs]
        spends = [row.mean_usd_per_hour / base.mean_usd_per_hour for row, base in pairs]
        told += _versus(policy, world, budget, waits, spends)
    return told


def _rows(found: Iterable[CaseRow]) -> list[tuple[CaseRow, CellResult]]:
    """Return the cells that have a row, with their rows."""
    return [(one, one.row) for one in found if one.row is not None]


def _leads(study: Study, one: CaseRow) -> bool:
    return one.cell.policy == study.file.reference


def _groups(
    study: Study, rows: Sequence[tuple[CaseRow, CellResult]], *, leads: bool
) -> list[tuple[str, str, str]]:
    """Return (world, budget, policy) in the order of the file; all budgets together come last."""
    budgets = [*study.budgets, *([ALL] if len(study.budgets) > 1 else [])]
    policies = [*([study.file.reference] if leads else []), *study.rivals]
    return [(w, b, p) for w in study.worlds for b in budgets for p in policies]


def _of(
    rows: Sequence[tuple[CaseRow, CellResult]], world: str, budget: str, policy: str
) -> list[tuple[CaseRow, CellResult]]:
    """Return the rows of a policy in a world at a budget, or at all budgets."""
    return [
        (one, row)
        for one, row in rows
        if (one.case.world, one.cell.policy) == (world, policy) and budget in {ALL, one.case.budget}
    ]


def _versus(
    policy: str, world: str, budget: str, waits: Sequence[float], spends: Sequence[float] = ()
) -> list[PairedRatios]:
    """Return the summary of some pairs as a list; empty without pairs."""
    if not waits:
        return []
    spend = ratio_of(spends) if spends else None
    return [
        PairedRatios(
            policy=policy,
            world=world,
            budget=budget,
            pairs=len(waits),
            waiting=ratio_of(waits),
            longer=sum(wait > 1.0 for wait in waits),
            spend=spend,
        )
    ]
