"""Day caps where the cloud refuses ends, ticks come late and prices step: its own bill is the proof."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.actions import TerminateNode
from boa_daemon.tick.facts.limits import Caps, day_of
from boa_daemon.tick.facts.ports import Accepted, Refused, Unknown
from boa_daemon.tick.facts.state import NodeState
from boa_daemon.tick.money.ledger import bill_within
from boa_daemon.units import dollars
from policies.model import NodeId

CLASSES = """
gpu_types: {t4: {instance_type: g4dn.12xlarge}}
classes:
  - name: default
    arrivals_per_hour: 6
    startup_hours: 0.02
    rescale_hours: 0.01
    phases: [{size_gpu_hours: 1.0, speedup: {amdahl: {parallel_fraction: 0.97, max_gpus: 8}}}]
"""
REFUSED_SECONDS = Caps().refused_seconds


@dataclass
class UnwillingCloud:
    """A cloud that refuses ends, or does not answer, for some seconds from the first try of a node on."""

    inner: Any
    clock: ManualClock
    draw: Random
    refuses_seconds: float
    factors: list[tuple[float, float]] = field(default_factory=list)
    """The prices over time: since an instant, so many times the price at launch."""
    tries: dict[NodeId, list[float]] = field(default_factory=lambda: defaultdict(list))
    willing_at: dict[NodeId, float] = field(default_factory=dict)
    all: dict[NodeId, NodeState] = field(default_factory=dict)
    """Every node that there ever was."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def nodes(self) -> Sequence[NodeState]:
        listed = [self._priced(node) for node in self.inner.nodes()]
        self.all |= {node.id: node for node in listed}
        return listed

    def _priced(self, node: NodeState) -> NodeState:
        """Return a node at the prices that the cloud bills."""
        base = node.instance_type.usd_per_hour
        before = [factor for at, factor in self.factors if at <= node.launched_at]
        steps = [(node.launched_at, base * (before or [1.0])[-1])]
        now = self.clock.now()
        steps += [(at, base * factor) for at, factor in self.factors if node.launched_at < at <= now]
        return replace(node, prices=tuple(steps))

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        now, answers = self.clock.now(), dict[NodeId, Accepted | Refused | Unknown]()
        for action in actions:
            self.tries[action.node].append(now)
            if action.node not in self.willing_at:
                patience = self.draw.choice((0.0, 1.0, 0.5)) * self.refuses_seconds
                self.willing_at[action.node] = now + patience
            if now < self.willing_at[action.node]:
                refused: Refused | Unknown = Refused(reason="no", kind="throttled", retry_after_seconds=5.0)
                answers[action.node] = self.draw.choice((refused, Unknown(reason="silence")))
            else:
                answers |= self.inner.terminate([action])
        return answers


@dataclass
class Site:
    """A daemon with a day cap on such a cloud, and the instants of its ticks."""

    play: DaemonInAFolder
    cloud: UnwillingCloud
    clock: ManualClock
    wakes: list[float] = field(default_factory=list)

    def tick(self) -> None:
        self.wakes.clear()
        self.play.daemon.tick()
        sooner = self.play.daemon.standing.decision
        if sooner is not None and sooner.wake_at is not None:
            self.wakes.append(max(sooner.wake_at - self.clock.now(), 1.0))

    def billed_usd(self) -> float:
        """Return the cloud's own bill of today."""
        now = self.clock.now()
        self.cloud.nodes()
        nodes = self.cloud.all.values()
        return dollars(sum(bill_within(node, day_of(now), until=node.ended_at or now) for node in nodes))


def opened(folder: Path, draw: Random, *, tick_seconds: float, cap_usd: float, refuses: float) -> Site:
    """Open a site at the beginning of a day, with more work than the cap pays for."""
    clock = ManualClock(1_800_000_000.0 - 1_800_000_000.0 % 86_400.0)
    (folder / "classes.yaml").write_text(CLASSES, encoding="utf-8")
    settings: dict[str, dict[str, Any]] = {
        "budget": {"usd_per_hour": 60.0, "max_instances": 6, "usd_per_day_cap": cap_usd},
        "cloud": {"instance_types": ["g4dn.12xlarge"], "boot_seconds": 120.0},
        "workload": {"classes": str(folder / "classes.yaml"), "explore_fraction": 0.0},
        "learning": {"rates": False, "sizes": False},
        "daemon": {"tick_seconds": tick_seconds},
    }
    clouds: list[UnwillingCloud] = []

    def wrapped(inner: Any) -> UnwillingCloud:
        clouds.append(UnwillingCloud(inner=inner, clock=clock, draw=draw, refuses_seconds=refuses))
        return clouds[0]

    return Site(
        play=DaemonInAFolder(folder, clock, settings, wrap_cloud=wrapped), cloud=clouds[0], clock=clock
    )


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(4, 24))]
)
def test_a_refused_end_a_late_tick_and_a_dearer_price_break_no_cap(tmp_path: Path, seed: int) -> None:
    """Ends are refused once or some times for as long as the caps allow; ticks come up to four times late."""
    draw = Random(seed)
    tick = draw.choice((30.0, 60.0, 300.0))
    cap = draw.choice((30.0, 45.0, 80.0))
    site = opened(tmp_path, draw, tick_seconds=tick, cap_usd=cap, refuses=REFUSED_SECONDS - 1.0)
    play, clock = site.play, site.clock
    began, most = clock.now(), 0.0
    while clock.now() - began < 9 * 3600.0:
        if draw.random() < 0.35 * tick / 60.0:
            play.service.submit([job_content(hours=draw.lognormvariate(0.0, 1.0), max_gpus=8)], user="ann")
        if draw.random() < 0.01:
            last = site.cloud.factors[-1][1] if site.cloud.factors else 1.0
            site.cloud.factors.append((clock.now() + 1.0, last * draw.choice((1.0, 1.2, 0.9))))
        site.tick()
        seconds = min([tick, *site.wakes])
        clock.instant += draw.choice((seconds, seconds, tick * draw.uniform(1.0, 4.0)))
        most = max(most, site.billed_usd())
        if most > 0.5 * cap and not any(node.ended_at is None for node in site.cloud.nodes()):
            break
    assert most <= cap
    assert most > 0.5 * cap
    assert any(len(tries) > 1 for tries in site.cloud.tries.values()), "some end was refused"
    play.close()
