"""`boa slurm caps`: limits of Slurm's accounts as caps of teams that boa.toml takes."""

from __future__ import annotations

import tomllib

import pytest

from boa_daemon.cli.operate.slurm import toml_lines
from boa_daemon.daemon.service.slurm_caps import caps_of
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.slurm.limits import Controller, read_limits

MONTHLY = Controller(forgets_hours=730.0, said="PriorityUsageResetPeriod is MONTHLY")
SETTINGS = Settings.model_validate(
    {
        "cloud": {"instance_types": ["g5.12xlarge", "g5.xlarge"]},
        "slurm": {
            "partitions": {"big": {"instance_type": "g5.12xlarge"}, "small": {"instance_type": "g5.xlarge"}},
            "teams": {"ml": "vision"},
        },
        "teams": {"vision": {"members": ["ann"]}},
    }
)
ROWS = """Account|User|Partition|GrpTRESMins
root|||
ml|||gres/gpu=240000
ml|ann||gres/gpu=10
n.lp||small|gres/gpu=60000
lab||third|cpu=5
"""


def test_the_lines_are_settings_and_say_where_they_come_from() -> None:
    """1,000 node-hours of 4 GPUs, and 1,000 hours of one; users and other partitions are left out by name."""
    found = caps_of(read_limits(ROWS, file="a"), MONTHLY, SETTINGS)
    lines = toml_lines(found, MONTHLY.said, SETTINGS.slurm.teams)
    given = tomllib.loads("\n".join(lines))
    catalog = {one.machine: one.usd_per_hour for one in found.caps}
    assert given["slurm"]["teams"] == {"n.lp": "n.lp"}
    small = given["teams"]["n.lp"]["usd_per_month_cap"]
    assert small == pytest.approx(1000.0 * catalog["g5.xlarge"])
    # One GPU-hour is dearest where it buys most: on the small machines of the same GPU or the big ones.
    vision = next(one for one in found.caps if one.team == "vision")
    assert given["teams"]["vision"]["usd_per_month_cap"] == pytest.approx(
        vision.money.usd_per_month, abs=0.01
    )
    assert vision.money.usd >= 1000.0 * catalog.get("g5.12xlarge", 0.0)
    assert len(found.left_out) == 2
    assert all(f"# {text}" in lines for text in found.left_out)
    Settings.model_validate(given)


def test_a_limit_over_all_time_makes_no_cap_per_month() -> None:
    """Slurm forgets nothing then, and a month has no number."""
    found = caps_of(read_limits("Account|GrpTRESMins\nml|cpu=5\n", file="a"), Controller(), SETTINGS)
    assert found.caps == []
    assert "never forgotten" in found.left_out[0]


def test_two_accounts_of_one_team_give_the_smaller_cap() -> None:
    """The other is named."""
    settings = SETTINGS.model_copy(
        update={"slurm": SETTINGS.slurm.model_copy(update={"teams": {"a": "t", "b": "t"}})}
    )
    found = caps_of(read_limits("Account|GrpTRESMins\na|cpu=500\nb|cpu=400\n", file="a"), MONTHLY, settings)
    assert [one.account for one in found.caps] == ["b"]
    assert "account a" in found.left_out[0]
