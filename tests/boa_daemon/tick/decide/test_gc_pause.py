"""The garbage collector is paused while a tick runs, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence

import pytest

from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import Ideal, a_job, a_node, a_state
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.decide.decision import decide
from boa_daemon.tick.decide.gc_pause import without_gc
from boa_daemon.tick.facts.state import JobState, Rules
from policies.answer import Allocation
from policies.model import Job, JobId, Money
from policies.registry import find_placer


class Looks:
    """A policy that records whether the collector is on."""

    def __init__(self) -> None:
        self.found: list[bool] = []

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Return no widths."""
        del jobs, now, money
        self.found.append(gc.isenabled())
        return Allocation(widths={})


class Broken(Looks):
    """A policy that fails."""

    def allocate(self, jobs: Sequence[Job], *, now: float, money: Money | None = None) -> Allocation:
        """Raise an error."""
        raise RuntimeError("broken")


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    """Turn the collector on before and after each test."""
    gc.enable()
    yield
    gc.enable()


def test_the_collector_is_off_during_a_decision_and_then_as_before() -> None:
    """It is on again afterwards, or off if it was off before."""
    policy = Looks()
    state = a_state(a_job("j"), nodes=[a_node("n")])
    decide(state, allocator=policy, placer=find_placer("lwf"), rules=Rules(instance_types={}))
    assert gc.isenabled()
    gc.disable()
    decide(state, allocator=policy, placer=find_placer("lwf"), rules=Rules(instance_types={}))
    assert not gc.isenabled()
    assert policy.found == [False, False]


def test_the_collector_is_off_while_a_tick_observes_the_world() -> None:
    """Observing makes as many values as deciding."""
    found: list[bool] = []

    class Watched(Ideal):
        def jobs(self) -> Mapping[JobId, JobState]:
            found.append(gc.isenabled())
            return super().jobs()

    world = Watched(a_state(a_job("j"), nodes=[a_node("n")]))
    ports = Ports(clock=world.clock, cloud=world, jobs=world, engine=world, store=MemoryStore())
    Controller(
        allocator=Looks(), placer=find_placer("lwf"), rules=Rules(instance_types={}), ports=ports
    ).run_once()
    assert found
    assert not any(found)
    assert gc.isenabled()


def test_after_an_error_the_collector_is_on_again() -> None:
    """A policy that fails does not leave the collector off."""
    with pytest.raises(RuntimeError, match="broken"):
        without_gc(Broken().allocate)([], now=0.0)
    assert gc.isenabled()
