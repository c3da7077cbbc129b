"""`slurm/limits.py`: limits in minutes of a resource are dollars of node-hours, worked out by hand."""

from __future__ import annotations

import math

import pytest

from boa_daemon.errors import InputError
from boa_daemon.slurm.limits import Controller, NodeSize, money_of, read_controller, read_limits

NODE = NodeSize(
    machine="g5.12xlarge", usd_per_hour=6.0, cpus=48, memory_mib=196_608.0, gpus=4, gpu_model="a10g"
)
CONFIG = "Configuration data as of 2026-11-28\n{lines}\n\nSlurmctld(primary) at head is UP\n"
PARTITION = "PartitionName=rented\n   AllowGroups=ALL AllowAccounts=ALL\n   TRESBillingWeights={weights}\n"


@pytest.mark.parametrize(
    ("limit", "weights", "flags", "node_hours"),
    [
        ("gres/gpu=24000", "", "", 100.0),
        ("gres/gpu:a10g=24000", "", "", 100.0),
        ("cpu=288000", "", "", 100.0),
        ("node=6000", "", "", 100.0),
        ("node=6K", "", "", 100.0),
        ("mem=1179648000", "", "", 100.0),
        ("mem=1152000G", "", "", 100.0),
        ("billing=288000", "", "", 100.0),  # CPUs, where a partition has no weights.
        ("billing=480000", "CPU=0.5,Mem=0.25G,GRES/gpu=2.0", "", 100.0),  # 24 + 48 + 8 a minute.
        ("billing=288000", "CPU=0.5,Mem=0.25G,GRES/gpu=2.0", "MAX_TRES", 100.0),
        ("billing=336000", "CPU=0.5,Mem=0.25G,GRES/gpu=2.0", "DEPTH_OBLIVIOUS,MAX_TRES_GRES", 100.0),
        ("billing=24000", "GRES/gpu:a10g=1", "", 100.0),
        ("gres/gpu=24000,cpu=576000", "", "", 100.0),
        ("gres/gpu=-1,cpu=288000", "", "", 100.0),
    ],
)
def test_a_limit_is_so_many_hours_of_a_node(limit: str, weights: str, flags: str, node_hours: float) -> None:
    """The limit that is reached first counts; a month's reset makes it a month's cap."""
    lines = f"PriorityFlags           = {flags}\nPriorityUsageResetPeriod = MONTHLY"
    said = read_controller(
        CONFIG.format(lines=lines) + (PARTITION.format(weights=weights) if weights else "")
    )
    (found,) = read_limits(f"Account|User|GrpTRESMins\nml||{limit}\n", file="a")
    money = money_of(found, NODE, "rented", said)
    assert money is not None
    assert money.node_hours == pytest.approx(node_hours)
    assert money.usd == pytest.approx(6.0 * node_hours)
    assert money.usd_per_month == pytest.approx(money.usd)


@pytest.mark.parametrize(
    ("lines", "months"),
    [
        ("PriorityUsageResetPeriod = MONTHLY", 1.0),
        ("PriorityUsageResetPeriod = QUARTERLY", 3.0),
        ("PriorityUsageResetPeriod = YEARLY", 12.0),
        ("PriorityUsageResetPeriod = WEEKLY", 168.0 / 730.0),
        (
            "PriorityDecayHalfLife = 7-00:00:00\nPriorityUsageResetPeriod = NONE",
            168.0 / math.log(2.0) / 730.0,
        ),
        ("PriorityDecayHalfLife = 12:00:00", 12.0 / math.log(2.0) / 730.0),
        ("PriorityDecayHalfLife = 00:00:00\nPriorityFlags =\nPriorityUsageResetPeriod = NONE", math.inf),
    ],
)
def test_usage_is_forgotten_by_reset_or_by_decay(lines: str, months: float) -> None:
    """At a steady rate, decayed usage is the rate times the half-life over log 2."""
    assert read_controller(CONFIG.format(lines=lines)).forgets_hours == pytest.approx(730.0 * months)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Account|User\nml|\n",
        "Account|GrpTRESMins\nml|billing\n",
        "Account|GrpTRESMins\nml|billing=many\n",
        "Account|GrpTRESMins\nml\n",
        "Account|GrpTRESMins\nml|cpu=1\nml|cpu=2\n",
        "ml|cpu=1\n",
    ],
)
def test_what_is_no_output_of_sacctmgr_is_refused(text: str) -> None:
    """The command that writes it is named, or the line that is wrong."""
    with pytest.raises(InputError) as error:
        read_limits(text, file="a")
    assert "sacctmgr" in (error.value.hint or "") or error.value.line


def test_a_resource_that_nodes_do_not_have_is_worth_nothing() -> None:
    """A licence, or another model of GPU."""
    for limit in ("license/matlab=5", "gres/gpu:h100=5", "gres/gpu=-1"):
        (found,) = read_limits(f"Account|GrpTRESMins\nml|{limit}\n", file="a")
        assert money_of(found, NODE, "rented", Controller(forgets_hours=730.0)) is None
