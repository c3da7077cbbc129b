"""The benchmark of machines and markets: which sites it makes, and how far their budgets go."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from benchmark_modules import BENCHMARKS, benchmark_module

from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.traces.itp import import_itp
from boa_daemon.traces.workload import Options
from policies.model import InstanceType

DATA = Path(__file__).parents[1] / "data"
ITP = DATA / "itp/elasticflow/cluster10.csv"


@pytest.fixture
def rent(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the benchmark as a module; it imports a script beside it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return benchmark_module("rent")


def test_itp_without_profiles_is_told_what_lacks(
    rent: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its jobs then have one width each on GPUs that nobody names, so no site can be made of them."""
    monkeypatch.setattr("sys.argv", ["rent.py", "itp", str(ITP)])

    with pytest.raises(SystemExit):
        rent.main()

    assert "itp needs --profiles" in capsys.readouterr().err


def test_machines_that_a_class_cannot_run_on_make_no_site(rent: ModuleType) -> None:
    """ITP's classes were measured on A100: on T4 alone there is nothing to compare."""
    found = import_itp(ITP, Options(profiles=DATA / "elasticflow", limit=20))
    a100 = InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=22.0)
    t4 = replace(a100, name="g4dn.12xlarge", gpu_type="t4", gpus=4)

    assert rent.site(found.trace, {"t4": t4}, found.classes) is None
    assert rent.site(found.trace, {"a100": a100}, found.classes).problem.classes == found.classes


class SpendsLess:
    """Runs that bill 0.8 of their budget, and 0.5 of it under a commitment."""

    def run(
        self, _function: object, settings: SimulationSettings, *_window: float
    ) -> tuple[float, float, float]:
        """Return minutes and both bills."""
        usd = settings.budget.amount
        return 1e4 / usd, 0.8 * usd, 0.5 * usd


def test_budgets_go_on_until_the_sum_is_spent(rent: ModuleType) -> None:
    """Else the waiting at a sum would be that of a run that spent less."""
    words = argparse.Namespace(
        source="itp", data=ITP, profiles=DATA / "elasticflow", workload=None, jobs=20, hours=24.0,
        times=1.5, points=3, policy="boa-paced",
    )  # fmt: skip
    bench = rent.Bench(words, 0, SpendsLess())
    rows = dict(bench.of_machines())

    assert set(rows) == {rent.TODAY, rent.BEST_SINGLE, rent.WITH_SPOT}
    for runs in rows.values():
        assert max(run[2] for run in runs[0]) >= max(bench.monies)
