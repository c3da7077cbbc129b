"""The benchmark of machines and markets, `benchmarks/rent.py`: its sites and its range of budgets."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from benchmark_modules import BENCHMARKS, benchmark_module

from boa_daemon.lab.traces.itp import import_itp
from boa_daemon.sim.wiring import SimulationSettings
from boa_daemon.traces.workload import Options
from policies.model import InstanceType

DATA = Path(__file__).parents[1] / "data"
ITP = DATA / "itp/elasticflow/cluster10.csv"


@pytest.fixture
def rent(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the benchmark as a module; it imports a script beside it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return benchmark_module("rent")


def test_itp_without_profiles_is_refused(
    rent: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without profiles each ITP job has one width, on GPUs of unknown type, so no site can be made."""
    monkeypatch.setattr("sys.argv", ["rent.py", "itp", str(ITP)])

    with pytest.raises(SystemExit):
        rent.main()

    assert "itp needs --profiles" in capsys.readouterr().err


def test_machines_that_a_class_cannot_run_on_make_no_site(rent: ModuleType) -> None:
    """ITP's classes were measured on A100 only, so T4 machines alone make no site."""
    found = import_itp(ITP, Options(profiles=DATA / "elasticflow", limit=20))
    a100 = InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=22.0)
    t4 = replace(a100, name="g4dn.12xlarge", gpu_type="t4", gpus=4)

    assert rent.site(found.trace, {"t4": t4}, found.classes) is None
    assert rent.site(found.trace, {"a100": a100}, found.classes).problem.classes == found.classes


class SpendsLess:
    """A run that bills 0.8 of its budget, and 0.5 of the budget under a commitment."""

    def run(
        self, _function: object, settings: SimulationSettings, *_window: float
    ) -> tuple[float, float, float]:
        """Return minutes and both bills."""
        usd = settings.budget.amount
        return 1e4 / usd, 0.8 * usd, 0.5 * usd


def test_budgets_rise_until_the_largest_sum_is_spent(rent: ModuleType) -> None:
    """Runs bill less than their budget, and yet each row has a run that spends the largest sum."""
    words = argparse.Namespace(
        source="itp", data=ITP, profiles=DATA / "elasticflow", workload=None, jobs=20, hours=24.0,
        times=1.5, points=3, policy="boa-paced",
    )  # fmt: skip
    bench = rent.Bench(words, 0, SpendsLess())
    rows = dict(bench.of_machines())

    assert set(rows) == {rent.TODAY, rent.BEST_SINGLE, rent.WITH_SPOT}
    for runs in rows.values():
        assert max(run[2] for run in runs[0]) >= max(bench.monies)
