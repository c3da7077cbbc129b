"""The gain from ordering messages (`gate/ordering_gain.py`), and the fitted link (`gate/timing.py`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.gate.broker import Broker
from boa_daemon.gate.ordering_gain import JobTraffic, cost_fraction, gain_fraction
from boa_daemon.gate.timing import LEAST_SAMPLES, Timings
from boa_daemon.gate.types import GateSettings, SendRequest
from boa_daemon.lab.network.model import Cluster, Experiment, NetworkJob
from boa_daemon.lab.network.simulate import simulate
from policies.links.ada_srsf import LinkPolicy
from policies.links.contention import Link

LINK = Link(latency_seconds=1e-3, seconds_per_byte=1e-6, contention_seconds_per_byte=2e-7)


def some_jobs(share: float, count: int = 3) -> list[JobTraffic]:
    """Return jobs that send `share` seconds per second of computing; each job is longer than the last."""
    return [
        JobTraffic(
            job=f"j{n}",
            compute_seconds=0.1,
            sending_seconds=0.1 * share,
            asks=2.0,
            round_trip_seconds=0.001,
            left_seconds=20.0 * (n + 1),
        )
        for n in range(count)
    ]


@given(share=st.floats(0.01, 5.0), crowding=st.floats(0.0, 1.0))
def test_the_gain_grows_with_crowding_and_stays_below_one(share: float, crowding: float) -> None:
    """A larger contention penalty makes ordering worth more."""
    jobs = some_jobs(share)

    assert gain_fraction(jobs, crowding=crowding) <= gain_fraction(jobs, crowding=crowding + 0.5) < 1.0


def test_one_job_gains_nothing() -> None:
    """Ordering needs two jobs."""
    assert gain_fraction(some_jobs(1.0, count=1), crowding=0.3) == pytest.approx(0.0, abs=1e-12)


def test_the_cost_is_the_time_of_requests_per_iteration() -> None:
    """Two requests of 1 ms in 150 ms."""
    assert cost_fraction(some_jobs(0.5)) == pytest.approx(2 * 0.001 / 0.15)


def test_the_gain_is_close_to_that_of_the_simulator() -> None:
    """Below 2 % the model agrees; above, it lies between 0.4 and 1.6 times the simulated gain."""
    for share in (0.03, 0.1, 0.5, 2.0, 4.0):
        habits = some_jobs(share)
        case = Experiment(
            cluster=Cluster(servers=2, gpus_per_server=3, gpu_memory_bytes=1.0),
            jobs=tuple(
                NetworkJob(
                    id=habit.job,
                    gpus=2,
                    iterations=round((habit.left_seconds or 0.0) / habit.alone_seconds),
                    forward_seconds=0.04 + 0.001 * n,
                    backward_seconds=0.06,
                    message_bytes=(habit.sending_seconds - LINK.latency_seconds) / LINK.seconds_per_byte,
                )
                for n, habit in enumerate(habits)
            ),
            link_policy=LinkPolicy(link=LINK, max_at_once=1),
            pinned={n: (n, 3 + n) for n in range(3)},
        )
        in_order = simulate(case, engine="python").jct.mean()
        at_once = Experiment(
            cluster=case.cluster,
            jobs=case.jobs,
            link_policy=LinkPolicy(link=LINK, max_at_once=9),
            pinned=case.pinned,
        )
        found = 1.0 - in_order / simulate(at_once, engine="python").jct.mean()

        gain = gain_fraction(habits, crowding=0.2)
        if found < 0.02:
            assert gain < 0.02
        else:
            assert 0.4 * found < gain < 1.6 * found


def test_the_link_is_fitted_from_timed_messages() -> None:
    """Messages alone and together recover the speed and the contention penalty."""
    configured = Link(latency_seconds=0.0, seconds_per_byte=5e-7, contention_seconds_per_byte=0.0)
    timings = Timings(configured)
    draw = np.random.default_rng(1)
    for _ in range(60):
        crowd, size = int(draw.integers(1, 3)), float(draw.integers(1, 9)) * 1e4
        seconds = LINK.seconds(size, messages_at_once=crowd) * float(draw.normal(1.0, 0.01))
        timings.add(messages_at_once=crowd, message_bytes=size, seconds=seconds)

    assert timings.refit()
    assert timings.link.seconds_per_byte == pytest.approx(LINK.seconds_per_byte, rel=0.03)
    assert timings.link.contention_seconds_per_byte == pytest.approx(
        LINK.contention_seconds_per_byte, rel=0.2
    )
    assert not timings.refit(), "nothing new"


def test_messages_alone_fit_the_speed_and_keep_the_penalty_ratio() -> None:
    """Under SRSF(1) no messages meet, so the contention penalty scales with the speed."""
    timings = Timings(LINK)
    for _ in range(LEAST_SAMPLES):
        timings.add(messages_at_once=1, message_bytes=1e5, seconds=1e-3 + 1e5 * 2e-6)

    assert timings.refit()
    assert timings.link.seconds_per_byte == pytest.approx(2e-6)
    assert timings.link.contention_seconds_per_byte == pytest.approx(4e-7)


def test_implausible_timings_are_rejected() -> None:
    """A link a hundred times slower than configured is a measurement error."""
    timings = Timings(LINK)
    for _ in range(LEAST_SAMPLES):
        timings.add(messages_at_once=1, message_bytes=1e5, seconds=10.0)

    assert not timings.refit()
    assert timings.link == LINK


def test_the_broker_fits_the_link_from_reported_durations() -> None:
    """Each returned lease is a sample."""
    gate = Broker(GateSettings(link=LINK, policy="ada-srsf", is_always_on=True, evaluate_seconds=1.0))
    gate.join("a", nics=frozenset("A"), gpus=1, weight=1.0, now=0.0)
    for number in range(LEAST_SAMPLES):
        now = 0.01 * number
        gate.ask("a", SendRequest(id=number, ready_bytes=1e5, message_bytes=1e5), now)
        (grant,) = gate.settle(now)
        gate.done("a", grant.fence, 1e-3 + 1e5 * 2e-6, now)
    gate.settle(2.0)

    assert gate.policy.link.seconds_per_byte == pytest.approx(2e-6)


def test_the_gain_is_smaller_if_jobs_share_only_some_of_their_cards() -> None:
    """Jobs on pairs of three hosts leave cards idle in order, and gain less than jobs on two hosts."""
    seats = [{"n1", "n2"}, {"n2", "n3"}, {"n1", "n3"}] * 2
    alike = [
        JobTraffic(
            job=f"j{n}",
            compute_seconds=0.03,
            sending_seconds=0.1,
            asks=1.0,
            round_trip_seconds=0.001,
            left_seconds=5.0 * (n + 1),
            cards=frozenset(cards),
        )
        for n, cards in enumerate(seats)
    ]
    together = [replace(job, cards=frozenset({"n1", "n2"})) for job in alike]

    assert gain_fraction(alike, crowding=0.0) < gain_fraction(together, crowding=0.0) - 0.1
