"""Advice on commitments from stated classes, a trace, or past rentals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.commitments_file import CommitmentsFile, parse_commitments
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.planning.budget_plan import budget_plan
from boa_daemon.planning.commitment_backtest import (
    first_part,
    loads_around,
    rentals_of,
    settings_from_known_part,
    split_instant,
)
from boa_daemon.planning.commitments import AdviceBacktest, LoadInterval, TermAdvice, advise, backtests
from boa_daemon.planning.rentals import load_between, read_rentals
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.traces.reader import Trace
from policies.model import Budget, InstanceType
from policies.optimum.commitments import LoadDistribution, load_of_swings
from policies.registry import DEFAULT_POLICY


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentAdvice:
    """The advice for each term, its backtests if past load is known, and the offers.

    `policy` is the one that ran the trace; None without a trace.
    """

    advice: tuple[TermAdvice, ...]
    proofs: tuple[AdviceBacktest, ...] = ()
    terms: CommitmentsFile
    policy: str | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the answer as JSON."""
        return {
            "offers_as_of": None if self.terms.as_of is None else self.terms.as_of.isoformat(),
            "offers_source": self.terms.source,
            "policy": self.policy,
            "terms": [advice.to_document() for advice in self.advice],
            "proof": [proof.to_document() for proof in self.proofs],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each commitment."""
        return [
            {"term_years": advice.term_years, **row, "gpu_types": " ".join(row["gpu_types"])}
            for advice in self.advice
            for row in (line.to_document() for line in advice.lines)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """A request for advice: the offers, the uncertainty of the load, and the fraction held out for the test.

    `policy` runs the trace; the default is the daemon's.
    """

    offers: Document
    spread: float = 0.25
    held_out: float = 0.5
    seed: int = 0
    policy: str = DEFAULT_POLICY

    def from_classes(self, file: ProblemFile, asked: Budget) -> CommitmentAdvice:
        """Return the advice for the load of the stated classes at their optimum.

        Raises:
            InputError: when the offers are wrong, or cover none of the machines.
            InfeasibleBudget: when the budget cannot run every job.
        """
        _check_dollars(file, asked)
        swings = [part.swing for part in budget_plan(file, asked, "integer-mixed").packing]
        machines = [file.instance_types[swing.gpu_type] for swing in swings]
        terms = self._terms(machines, Catalog.load())

        def load_at(factor: float) -> LoadDistribution:
            return load_of_swings(swings, factor=factor)

        return CommitmentAdvice(advice=advise(load_at, self._interval, machines, terms.offers), terms=terms)

    def from_trace(
        self, file: ProblemFile, asked: Budget, arrivals: Trace, name: str | Path
    ) -> CommitmentAdvice:
        """Return the advice for the rentals of a simulated trace, tested on its last part.

        Raises:
            InfeasibleBudget: when the budget cannot run every job.
            InputError: when the offers are wrong or cover none of the machines, or the trace is too short.
            UnknownPolicy: when the policy's name is unknown.
        """
        _check_dollars(file, asked)
        machines = list(file.instance_types.values())
        terms = self._terms(machines, Catalog.load())
        at = split_instant(arrivals, self.held_out)
        known = first_part(arrivals, at)
        if len(known.jobs) < 2:
            raise InputError("the first part of the trace has fewer than two jobs", file=name)
        settings = replace(
            settings_from_known_part(file, arrivals, known, asked), seed=self.seed, policy=self.policy
        )
        rentals = Tasks(kept=AnswerCache.for_user()).run(rentals_of, settings)
        load, early, late = loads_around(rentals, tuple(m.gpu_type for m in machines), arrivals, at)
        interval = LoadInterval.of_trace(arrivals, file.problem.classes)
        return CommitmentAdvice(
            advice=advise(load.times, interval, machines, terms.offers),
            proofs=backtests(early, late, machines, terms.offers),
            terms=terms,
            policy=self.policy,
        )

    def from_usage(self, usage: Path, catalog: Catalog) -> CommitmentAdvice:
        """Return the advice for past rentals, tested on their last part.

        Raises:
            InputError: when the offers or the usage file are wrong, or no offer covers a rented machine.
        """
        rentals, machines, begin, end = read_rentals(usage, catalog)
        names, middle = tuple(m.gpu_type for m in machines), end - self.held_out * (end - begin)
        terms = self._terms(machines, catalog)
        load, early, late = (
            load_between(rentals, names, *ends) for ends in ((begin, end), (begin, middle), (middle, end))
        )
        return CommitmentAdvice(
            advice=advise(load.times, self._interval, machines, terms.offers),
            proofs=backtests(early, late, machines, terms.offers),
            terms=terms,
        )

    @property
    def _interval(self) -> LoadInterval:
        """The interval of the load if there is no trace."""
        return LoadInterval(low=1.0 - self.spread, high=1.0 + self.spread)

    def _terms(self, machines: Sequence[InstanceType], catalog: Catalog) -> CommitmentsFile:
        """Return the offers; raise an error if none covers a machine."""
        file = parse_commitments(self.offers, machines, catalog)
        path = self.offers.name
        if not file.offers:
            hint = "Add [[offers]] with name, kind, discount"
            raise InputError("the file has no offers", file=path, hint=hint)
        if all(terms.on(machines) is None for terms in file.offers):
            names = ", ".join(f"{machine.name} ({machine.gpu_type})" for machine in machines)
            hint = "Offers name a family or a GPU type"
            raise InputError(f"no offer covers {names}", file=path, hint=hint)
        return file


def _check_dollars(file: ProblemFile, asked: Budget) -> None:
    """Raise an error if the problem or the budget is in GPUs."""
    if file.problem.budget_unit == "gpus":
        raise InputError("commitments are paid in dollars", file=file.path, hint="Give gpu_types prices")
    if asked.unit == "gpus":
        raise InputError("commitments are paid in dollars", hint="Give a budget such as 40/h")
