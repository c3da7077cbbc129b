"""Starts of jobs that wait for money to accrue: by arithmetic, and beside what best effort then does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from boa_daemon.daemon.service.accrual_forecast import Course, Machines, starts_by_accrual
from boa_daemon.daemon.service.finish_forecast import FinishForecast, JobEstimate, forecast_finishes
from boa_daemon.sim.wiring import SimulationSettings, prepare
from boa_daemon.testing import a_class, a_trace, an_instance_type
from boa_daemon.tick.decide.decision import Decision
from boa_daemon.tick.facts.room_caps import RoomCap
from policies.answer import Accrual
from policies.model import Budget, GpuType, JobId, Problem, Width
from policies.speedup import Amdahl

ONE = Width("gpu", 1)


def machines(*, rented: int = 0, gpus: int = 1, ready_in: float = 0.0) -> Machines:
    """Return nodes at one dollar per GPU-hour."""
    return Machines(
        gpus={"gpu": gpus},
        usd_per_hour={"gpu": float(gpus)},
        rented={"gpu": rented},
        ready_in={"gpu": ready_in},
    )


def test_a_node_dearer_than_the_budget_is_rented_when_the_balance_pays_for_it() -> None:
    """0.5 + E / 2 = 1 at E = 1; from 0 that takes 2 h at 0.5 USD/hour, and then a boot of 0.1 h.

    The node runs for 1 h and takes 0.5 USD of the balance, so the next job may go on using it.
    """
    accrual = Accrual(per_hour=0.5, balance=0.0, spread_hours=2.0)
    waiting = {name: Course(width=ONE, hours=0.9) for name in "ab"}
    starts, ends = starts_by_accrual(accrual, machines(), {}, waiting, boot_hours=0.1)
    assert starts == pytest.approx({"a": 2.1, "b": 3.0})
    assert ends == pytest.approx({"a": 3.0, "b": 3.9})


def test_a_job_waits_for_the_job_that_takes_the_budget() -> None:
    """With 1 USD/hour a node is in use until 3 h; the next job starts there without a boot."""
    accrual = Accrual(per_hour=1.0, balance=0.0, spread_hours=1.0)
    running, waiting = {"a": Course(width=ONE, hours=3.0)}, {"b": Course(width=ONE, hours=1.0)}
    starts, ends = starts_by_accrual(accrual, machines(rented=1), running, waiting, boot_hours=0.1)
    assert starts == {"b": 3.0}
    assert ends == {"a": 3.0, "b": 4.0}


def test_what_is_beyond_the_budget_goes_at_the_lowest_balance_and_waits_again() -> None:
    """Two nodes at 1 USD/hour spend twice the budget: from 0 to -0.5 in half an hour, then one job stops."""
    accrual = Accrual(per_hour=1.0, balance=0.0, spread_hours=1.0)
    running = {name: Course(width=ONE, hours=2.0) for name in "ab"}
    waiting = {"c": Course(width=ONE, hours=1.0)}
    starts, ends = starts_by_accrual(accrual, machines(rented=2), running, waiting, boot_hours=0.0)
    assert ends["a"] == 2.0
    assert ends["b"] == pytest.approx(3.5)
    assert starts["c"] == pytest.approx(3.5)


def test_a_limit_on_nodes_holds_however_much_money_has_accrued() -> None:
    """One node at most: the second and the third job start when the one before has ended, without a boot."""
    limit = RoomCap(code="cap-instances", name="", size=1.0, node_sizes={"gpu": 1.0}, gpus={"gpu": 1})
    accrual = Accrual(per_hour=1.0, balance=90.0, spread_hours=1.0)
    waiting = {name: Course(width=ONE, hours=2.0) for name in "abc"}
    free, _ = starts_by_accrual(accrual, machines(), {}, waiting, boot_hours=0.5)
    assert free == {"a": 0.5, "b": 0.5, "c": 0.5}
    limited = replace(machines(), limits=(limit,))
    starts, _ = starts_by_accrual(accrual, limited, {}, waiting, boot_hours=0.5)
    assert starts == pytest.approx({"a": 0.5, "b": 2.5, "c": 4.5})
    wide = {"a": Course(width=Width("gpu", 2), hours=1.0)}
    assert starts_by_accrual(accrual, limited, {}, wide, boot_hours=0.5)[0] == {}


def test_a_job_is_not_started_before_its_own_cap_opens() -> None:
    """There is money, but the day of its cap ends in 5 h."""
    accrual = Accrual(per_hour=1.0, balance=9.0, spread_hours=1.0)
    waiting = {"a": Course(width=ONE, hours=1.0, not_before=5.0)}
    starts, _ = starts_by_accrual(accrual, machines(), {}, waiting, boot_hours=0.5)
    assert starts == {"a": 5.5}


@pytest.mark.parametrize(("seed", "gpus", "budget"), [(1, 1, 1.0), (2, 1, 2.5), (3, 4, 3.0), (5, 1, 0.4)])
def test_foretold_starts_come_true_when_no_more_jobs_arrive(seed: int, gpus: int, budget: float) -> None:
    """Twelve jobs on whole nodes under a budget below the load: starts are within a tenth or 0.6 h."""
    draw = np.random.default_rng(seed)
    curve = Amdahl(parallel_fraction=0.95, max_gpus=8)
    job_class = a_class(
        sizes=(2.0,), curve=curve, arrivals_per_hour=6.0, startup_hours=0.02, rescale_hours=0.02
    )
    arrivals = sorted(draw.uniform(0.0, 600.0, 12).tolist())
    run = prepare(
        SimulationSettings(
            trace=a_trace(*arrivals, scales=(draw.exponential(1.0, 12) + 0.05).tolist()),
            problem=Problem(classes=(job_class,), gpu_types=(GpuType(name="gpu", usd_per_gpu_hour=1.0),)),
            instance_types={"gpu": an_instance_type(gpus=gpus)},
            budget=Budget(amount=budget),
            policy="boa-paced",
            best_effort=True,
        )
    )
    told: dict[JobId, FinishForecast] = {}
    began: dict[JobId, float] = {}
    told_at = 0.0

    def watch(decision: Decision) -> None:
        nonlocal told_at
        state, plan = decision.state, decision.plan
        if not told and state.now >= 900.0:
            known = {
                name: JobEstimate(job_class=job_class, size_gpu_hours=2.0 * job.job.scale, spread=0.0)
                for name, job in state.jobs.items()
            }
            found = forecast_finishes(state, plan, known, boot_hours=0.05)
            told.update({name: one for name, one in found.items() if name not in began})
            told_at = state.now
            assert {name for name, code in plan.jobs.waiting.items() if code == "budget"} <= found.keys()
        for name, job in state.jobs.items():
            if job.slots or name in plan.jobs.slots:
                began.setdefault(name, state.now)

    run.finish(watch)
    assert len(told) > 5
    for name, one in told.items():
        assert one.starts_at is not None
        assert one.starts_at - told_at == pytest.approx(began[name] - told_at, rel=0.1, abs=0.6 * 3600.0), (
            name
        )
    assert any(one.accrues and "money that accrues" in one.sentence(told_at) for one in told.values())
