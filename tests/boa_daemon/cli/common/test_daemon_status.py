"""What `boa status` says of the money: the last dollars, and the limit beside the budget."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from boa_daemon.cli.common.daemon_status import _status
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

LOOSE = {"usd_per_day_cap": 2000.0}
CLASSES = """
gpu_types: {t4: {instance_type: g4dn.12xlarge}}
classes:
- name: vision
  arrivals_per_hour: 6.0
  phases: [{size_gpu_hours: 1.0, speedup: {t4: {table: {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.5}}}}]
"""


def status_of(folder: Path, budget: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the status of a daemon under a budget, as JSON and as text."""
    (folder / "classes.yaml").write_text(CLASSES)
    settings = {
        "cloud": {"boot_seconds": 0.0, "instance_types": ["g4dn.12xlarge"]},
        "workload": {"classes": str(folder / "classes.yaml")},
        "budget": budget,
    }
    play = DaemonInAFolder(folder, ManualClock(1_800_000_000.0), settings)
    play.service.submit([job_content(hours=50.0, **{"class": "vision"})], user="ann")
    play.daemon.tick()
    document = play.service.status()
    play.close()
    console = Console(width=200, record=True, file=StringIO())
    console.print(_status(document))
    return document, " ".join(console.export_text().split())


@pytest.mark.parametrize(
    ("budget", "setting", "said"),
    [
        (
            {"usd_per_hour": 40.0, **LOOSE, "max_instances": 2},
            "max_instances = 2",
            "jobs take",
        ),
        (
            {"usd_per_hour": 40.0, **LOOSE, "max_instances": 1},
            "max_instances = 1",
            "more and",
        ),
        (
            {"usd_per_hour": 40.0, "usd_per_day_cap": 168.0, "max_instances": 90},
            "usd_per_day_cap = 168",
            "which leaves $7.00/h to jobs",
        ),
        (
            {"usd_per_month": 29200.0, "usd_per_day_cap": 168.0, "max_instances": 90},
            "usd_per_day_cap = 168",
            "which leaves $5,110.00/month to jobs",
        ),
        (
            {
                "usd_per_hour": 40.0,
                **LOOSE,
                "usd_per_hour_ceiling": 7.0,
                "max_instances": 90,
            },
            "usd_per_hour_ceiling = 7",
            "which leaves $7.00/h to jobs",
        ),
    ],
)
def test_the_limit_beside_the_budget_is_named_in_the_unit_of_the_budget(
    tmp_path: Path, budget: dict[str, Any], setting: str, said: str
) -> None:
    """Nodes, or dollars a day or at any instant, for a budget an hour or a month."""
    document, text = status_of(tmp_path, budget)

    assert document["pacing"]["worth"]["second_limit"]["setting"] == setting
    assert f"Under {setting}" in text
    assert said in text


def test_no_limit_is_named_where_the_budget_binds_first(tmp_path: Path) -> None:
    """And the last dollars are told as before."""
    document, text = status_of(tmp_path, {"usd_per_hour": 40.0, **LOOSE, "max_instances": 90})

    assert document["pacing"]["worth"]["second_limit"] is None
    assert "Under " not in text
    assert "last dollars" in text
