"""`boa_daemon.gate.broker`: requests in, grants out."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.gate.broker import Broker
from boa_daemon.gate.types import GateSettings, Grant, SendRequest
from boa_daemon.lab.network.model import Cluster, Experiment, NetworkJob
from boa_daemon.lab.network.simulate import simulate
from policies.errors import InvalidProblem, UnknownPolicy
from policies.links.ada_srsf import Admission, LinkPolicy, Message, link_policy
from policies.links.contention import Link

LINK = Link(latency_seconds=0.0, seconds_per_byte=1e-6, contention_seconds_per_byte=0.0)


def a_gate(**changes: object) -> Broker:
    """Return a gate that orders all messages on a link of 1 MB/s."""
    return Broker(
        replace(GateSettings(link=LINK, policy="srsf-1", is_always_on=True, fits_link=False), **changes)
    )


def an_ask(number: int = 1, size: float = 1e6, **measured: float) -> SendRequest:
    """Return a request for a message of this size."""
    return SendRequest(id=number, ready_bytes=size, message_bytes=size, iteration_bytes=size, **measured)


def seat(gate: Broker, *jobs: str, nics: str = "AB", now: float = 0.0) -> None:
    """Add jobs to the gate on the same cards."""
    for job in jobs:
        gate.join(job, nics=frozenset(nics), gpus=1, weight=1.0, now=now)


def jobs_of(grants: list[Grant]) -> list[str]:
    """Return the jobs that got a grant."""
    return [grant.job for grant in grants]


def test_the_next_job_is_granted_when_the_first_is_done() -> None:
    """Under SRSF(1) a card carries one message at a time."""
    gate = a_gate()
    seat(gate, "a", "b")
    gate.ask("a", an_ask(), 0.0)
    (first,) = gate.settle(0.0)
    gate.ask("b", an_ask(), 0.1)

    assert first.job == "a"
    assert gate.settle(0.1) == []
    gate.done("a", first.fence, 1.0, 1.0)
    assert jobs_of(gate.settle(1.0)) == ["b"]


def test_a_message_is_granted_all_its_cards_or_none() -> None:
    """A message over A and B does not hold A while B is busy."""
    gate = a_gate()
    gate.join("on-b", nics=frozenset("B"), gpus=1, weight=1.0, now=0.0)
    gate.join("both", nics=frozenset("AB"), gpus=1, weight=1.0, now=0.0)
    gate.join("on-a", nics=frozenset("A"), gpus=1, weight=1.0, now=0.0)
    gate.ask("on-b", an_ask(), 0.0)
    assert jobs_of(gate.settle(0.0)) == ["on-b"]
    gate.ask("both", an_ask(), 0.0)
    gate.ask("on-a", an_ask(), 0.0)

    assert jobs_of(gate.settle(0.0)) == ["on-a"]


def test_an_expired_lease_frees_its_cards_and_voids_its_fence() -> None:
    """The next job sends when the lease ends, and the late report of the holder is ignored."""
    gate = a_gate(lease_factor=2.0, most_lease_seconds=4.0)
    seat(gate, "a", "b")
    gate.ask("a", an_ask(), 0.0)
    (stalled,) = gate.settle(0.0)
    gate.ask("b", an_ask(), 0.5)
    gate.settle(0.5)
    assert gate.next_wake(0.5) == stalled.lease_seconds == 2.0 * 2.0 * 1.0

    (next_one,) = gate.settle(4.0)
    gate.ask("b", an_ask(2), 4.2)
    (after,) = gate.settle(4.2)
    gate.done("a", stalled.fence, 4.5, 4.5)

    # Other holders may have stopped too, so the waiting job sends without a lease.
    assert (next_one.job, next_one.fence, next_one.free_iterations) == ("b", 0, 1)
    assert after.fence > stalled.fence
    assert gate.seats["b"].lease is not None
    assert gate.counts["stalled"] == gate.counts["opened"] == 1
    assert gate.counts["late"] == 1


def test_a_job_that_leaves_with_a_lease_frees_its_cards() -> None:
    """A killed client is a closed connection."""
    gate = a_gate()
    seat(gate, "a", "b")
    gate.ask("a", an_ask(), 0.0)
    gate.settle(0.0)
    gate.ask("b", an_ask(), 0.1)
    gate.settle(0.1)
    gate.leave("a", 0.2)

    assert jobs_of(gate.settle(0.2)) == ["b"]


def test_less_remaining_service_goes_first_unless_the_other_is_overdue() -> None:
    """Of two waiting jobs, the nearly finished job is next unless the other has waited too long."""
    for waited, expected in ((1.0, "short"), (6.0, "long")):
        gate = a_gate(patience_seconds=5.0, lease_factor=100.0, most_lease_seconds=100.0)
        seat(gate, "holder", "long", "short")
        gate.ask("holder", an_ask(), 0.0)
        (held,) = gate.settle(0.0)
        gate.ask("long", an_ask(iterations_left=1000.0, compute_seconds=1.0), 0.1)
        gate.settle(0.1)
        gate.ask("short", an_ask(iterations_left=2.0, compute_seconds=1.0), 0.1 + waited - 0.05)
        gate.settle(0.1 + waited - 0.05)
        gate.done("holder", held.fence, 1.0, 0.1 + waited)

        assert jobs_of(gate.settle(0.1 + waited)) == [expected]


def test_a_job_that_reports_and_asks_at_once_keeps_its_rank() -> None:
    """The lower-ranked waiting job is not granted between two buckets."""
    gate = a_gate(policy="ada-srsf-buckets", bucket_bytes=1e5)
    seat(gate, "short", "long")
    gate.ask("short", an_ask(iterations_left=2.0, compute_seconds=0.1), 0.0)
    (grant,) = gate.settle(0.0)
    gate.ask("long", an_ask(iterations_left=500.0, compute_seconds=0.1), 0.01)
    gate.settle(0.01)
    gate.done("short", grant.fence, 0.1, 0.1)
    gate.ask("short", an_ask(2, 9e5, iterations_left=2.0, compute_seconds=0.1), 0.1)

    assert grant.bytes == 1e5
    assert jobs_of(gate.settle(0.1)) == ["short"]


def test_a_withdrawn_request_is_not_granted_and_ends_its_lease() -> None:
    """A job that withdrew blocks no other job."""
    gate = a_gate()
    seat(gate, "a", "b")
    gate.ask("a", an_ask(), 0.0)
    gate.settle(0.0)
    gate.ask("b", an_ask(), 0.0)
    gate.settle(0.0)
    gate.cancel("b", 0.1)
    gate.cancel("a", 0.2)
    gate.ask("b", an_ask(2), 0.3)

    assert jobs_of(gate.settle(0.3)) == ["b"]


def test_the_plan_ranks_jobs_that_do_not_report_remaining_iterations() -> None:
    """A job's own count takes precedence over the daemon's plan."""
    gate = a_gate()
    seat(gate, "a", "b")
    gate.take_plan({"a": 100.0, "b": 10.0})
    gate.ask("b", an_ask(iterations_left=3.0, compute_seconds=0.5), 0.0)
    gate.join("c", nics=frozenset("A"), gpus=1, weight=1.0, now=0.0)

    assert gate.seats["a"].service_seconds(LINK, 4.0) == 100.0
    assert gate.seats["b"].service_seconds(LINK, 4.0) == 3.0 * (0.5 + 1.0) - 0.5
    assert gate.seats["c"].service_seconds(LINK, 4.0) == 4.0


def test_jobs_without_count_and_plan_are_ranked_by_attained_service() -> None:
    """The rank is the GPU-seconds since the job joined."""
    gate = a_gate()
    gate.join("old", nics=frozenset("A"), gpus=2, weight=1.0, now=0.0)
    gate.join("new", nics=frozenset("A"), gpus=2, weight=1.0, now=5.0)

    assert gate.seats["old"].service_seconds(LINK, 10.0) == 2 * 10.0
    assert gate.seats["new"].service_seconds(LINK, 10.0) == 2 * 5.0


def test_a_job_alone_on_its_cards_asks_about_once_per_second() -> None:
    """The answer frees about a second of iterations without a lease."""
    gate = a_gate(is_always_on=False)
    seat(gate, "a")
    free = {}
    for at in (0.0, 1.0, 60.0):
        gate.ask("a", an_ask(size=1e5, compute_seconds=0.1, exposed_seconds=0.1), at)
        (grant,) = gate.settle(at)
        assert grant.fence == 0
        free[at] = grant.free_iterations

    # The first answers free less, so that a second job is noticed soon.
    assert free == {0.0: 1, 1.0: math.ceil(0.5 / 0.2), 60.0: math.ceil(1.0 / 0.2)}
    assert gate.nics["A"].verdict is not None
    assert "one job" in gate.nics["A"].verdict.why


def test_messages_are_ordered_only_on_cards_where_that_can_pay() -> None:
    """Two jobs that hardly send are not ordered; two jobs that mostly send are ordered."""
    for size, is_on in ((1e3, False), (1e6, True)):
        gate = a_gate(is_always_on=False, evaluate_seconds=1.0)
        seat(gate, "a", "b")
        assert gate.nics["A"].is_on, "learning"
        for job in ("a", "b"):
            measured = {"compute_seconds": 0.5, "exposed_seconds": size * 1e-6, "iterations_left": 100.0}
            gate.ask(job, an_ask(size=size, **measured), 0.1)
        gate.settle(0.1)
        gate.settle(1.2)

        assert gate.nics["A"].is_on is is_on
        assert gate.nics["A"].verdict is not None
        assert (
            "cannot pay" in gate.nics["A"].verdict.why or "fast" in gate.nics["A"].verdict.why
        ) is not is_on


def test_a_grant_lasts_until_a_better_ranked_job_may_return() -> None:
    """The grant is at least a bucket and at most a quarter of a second."""

    def granted(*, computed_for: float) -> float:
        gate = a_gate(policy="ada-srsf-buckets", bucket_bytes=1e4)
        seat(gate, "short", "long")
        gate.ask("short", an_ask(iterations_left=2.0, compute_seconds=0.3), 0.0)
        (first,) = gate.settle(0.0)
        gate.done("short", first.fence, 0.1, 0.1)
        at = 0.1 + computed_for
        gate.ask("long", an_ask(iterations_left=99.0, compute_seconds=0.3), at)
        (grant,) = gate.settle(at)
        return grant.bytes

    assert granted(computed_for=0.01) == 0.25e6, "a quarter of a second at most"
    assert granted(computed_for=0.2) == pytest.approx(0.1e6)
    assert granted(computed_for=0.3) == 1e4, "it may ask any moment"


def test_cards_are_handed_over_when_a_message_should_have_been_sent() -> None:
    """The next job is granted before the report of the last one, unless contention costs time."""
    for contention, is_early in ((0.0, True), (5e-7, False)):
        link = replace(LINK, contention_seconds_per_byte=contention)
        gate = a_gate(policy="ada-srsf-buckets", link=link, bucket_bytes=1e6)
        seat(gate, "a", "b")
        for job in "ab":
            gate.ask(job, an_ask(size=2e5), 0.0)
        (first,) = gate.settle(0.0)
        assert gate.next_wake(0.0) == pytest.approx(0.2 if is_early else first.lease_seconds)
        early = gate.settle(0.2)
        assert [grant.job for grant in early] == (["b"] if is_early else [])
        gate.done(first.job, first.fence, 0.21, 0.21)
        assert gate.counts["late"] == 0
        assert len(early) + len(gate.settle(0.21)) == 1


def test_a_bucket_takes_at_least_twenty_round_trips() -> None:
    """So requests cost at most a twentieth of the time."""
    gate = a_gate(policy="ada-srsf-buckets", bucket_bytes=1e4)
    seat(gate, "a", "b")
    gate.ask("a", an_ask(round_trip_seconds=0.002), 0.0)
    gate.settle(5.0)
    assert gate.bucket_bytes == pytest.approx(20 * 0.002 * 1e6)


def test_invalid_settings_are_refused() -> None:
    """A preemptive policy, an unknown policy and a beat of zero seconds are errors."""
    with pytest.raises(UnknownPolicy, match="ada-srsf-buckets comes nearest"):
        GateSettings(link=LINK, policy="srsf-preemptive")
    with pytest.raises(UnknownPolicy, match="Choose one of"):
        GateSettings(link=LINK, policy="fifo")
    with pytest.raises(InvalidProblem, match="beat_seconds"):
        GateSettings(link=LINK, beat_seconds=0.0)


def play(
    jobs: list[NetworkJob], cards: list[frozenset[str]], gate: Broker, *, epoch: float = 0.0
) -> list[float]:
    """Return the end of each job if it obeys the gate's grants on an ideal link."""
    link, bucket = gate.settings.link, gate.settings.grant_bytes
    index = {job.id: n for n, job in enumerate(jobs)}
    left = [float(job.message_bytes) for job in jobs]
    iterations = [job.iterations for job in jobs]
    flying: dict[int, list[float]] = {}
    ends = [math.nan] * len(jobs)
    ids, order = count(1), count()
    clock: list[tuple[float, int, int]] = []
    for n, job in enumerate(jobs):
        gate.join(job.id, nics=cards[n], gpus=job.gpus, weight=1.0, now=epoch)
        heapq.heappush(
            clock, (job.arrived_at_seconds + job.forward_seconds + job.backward_seconds, next(order), n)
        )
    now = 0.0

    def pace(n: int) -> float:
        return link.pace(max(sum(1 for other in flying if card in cards[other]) for card in cards[n]))

    def ask(n: int) -> None:
        size = min(bucket, left[n])
        measured = {
            "iterations_left": float(iterations[n]),
            "compute_seconds": jobs[n].forward_seconds + jobs[n].backward_seconds,
        }
        gate.ask(
            jobs[n].id,
            SendRequest(
                id=next(ids),
                ready_bytes=left[n],
                message_bytes=left[n],
                iteration_bytes=jobs[n].message_bytes,
                **measured,
            ),
            epoch + now,
        )
        assert size > 0

    while clock or flying:
        ready = clock[0][0] if clock else math.inf
        lands = min((now + f[1] + f[0] * pace(n) for n, f in flying.items()), default=math.inf)
        then = min(ready, lands)
        for n, flight in flying.items():
            step = then - now
            used = min(flight[1], step)
            flight[1] -= used
            flight[0] -= (step - used) / pace(n)
        now = then
        for n in [n for n, f in flying.items() if f[0] <= 1e-6 and f[1] <= 1e-12]:
            lease = gate.seats[jobs[n].id].lease
            assert lease is not None
            del flying[n]
            gate.done(jobs[n].id, lease.fence, None, epoch + now)
            if left[n] > 0:
                ask(n)
                continue
            iterations[n] -= 1
            if iterations[n] == 0:
                ends[n] = now
                gate.leave(jobs[n].id, epoch + now)
            else:
                left[n] = float(jobs[n].message_bytes)
                heapq.heappush(
                    clock, (now + jobs[n].forward_seconds + jobs[n].backward_seconds, next(order), n)
                )
        while clock and clock[0][0] <= now + 1e-12:
            ask(heapq.heappop(clock)[2])
        for grant in gate.settle(epoch + now):
            n = index[grant.job]
            size = min(bucket, left[n])
            left[n] -= size
            flying[n] = [size, link.latency_seconds]
    return ends


@pytest.mark.parametrize("policy", ["srsf-1", "srsf-2", "ada-srsf", "ada-srsf-buckets", "ada-srsf-queue"])
def test_jobs_at_the_gate_end_when_the_simulator_says(policy: str) -> None:
    """Gate and simulator use the same policy: five random cases give the same completion times."""
    link = Link(latency_seconds=1e-3, seconds_per_byte=1e-6, contention_seconds_per_byte=2.7e-7)
    for seed in range(5):
        draw = np.random.default_rng(seed)
        pins = [tuple(sorted(draw.choice(3, 2, replace=False).tolist())) for _ in range(5)]
        jobs = [
            NetworkJob(
                id=f"j{n}",
                gpus=2,
                iterations=int(draw.integers(2, 9)),
                forward_seconds=float(draw.uniform(0.05, 0.3)),
                backward_seconds=float(draw.uniform(0.05, 0.3)),
                message_bytes=float(draw.integers(100_000, 900_000)),
                arrived_at_seconds=float(draw.uniform(0.0, 1.0)),
            )
            for n in range(5)
        ]
        rule = link_policy(policy, link, bucket_bytes=120_000.0)
        cluster = Cluster(servers=3, gpus_per_server=5, gpu_memory_bytes=1.0)
        case = Experiment(
            cluster=cluster,
            jobs=tuple(jobs),
            link_policy=rule,
            pinned={n: tuple(5 * server + n for server in pin) for n, pin in enumerate(pins)},
        )
        gate = a_gate(
            link=link,
            policy=policy,
            bucket_bytes=120_000.0,
            patience_seconds=1e6,
            lease_factor=1e6,
            fills_idle_cards=False,
        )
        cards = [frozenset(f"n{server}" for server in pin) for pin in pins]

        assert play(jobs, cards, gate) == pytest.approx(simulate(case, engine="python").finished_at, rel=1e-6)


def test_the_gate_decides_the_same_at_any_clock_offset() -> None:
    """Completion times stay the same when the gate's clock is shifted by a year."""
    jobs = [
        NetworkJob(
            id=f"j{n}",
            gpus=2,
            iterations=4,
            forward_seconds=0.1 * n,
            backward_seconds=0.25,
            message_bytes=3e5,
        )
        for n in range(4)
    ]
    cards = [frozenset("AB")] * 4

    assert play(jobs, cards, a_gate(), epoch=0.0) == pytest.approx(
        play(jobs, cards, a_gate(), epoch=-3e7), abs=1e-5
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "done", "cancel", "leave", "join", "wait"]),
        st.integers(0, 4),
        st.floats(0.0, 3.0),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=sampled(150))
@given(steps=STEPS, policy=st.sampled_from(["srsf-1", "srsf-2", "ada-srsf", "ada-srsf-buckets"]))
def test_no_sequence_of_requests_overloads_a_card_or_repeats_a_fence(
    steps: list[tuple[str, int, float]], policy: str
) -> None:
    """Holders per card stay within the policy's limit, fences rise, and all waiting jobs are served."""
    gate = a_gate(policy=policy, bucket_bytes=2e5, is_always_on=True)
    cards = [frozenset("A"), frozenset("AB"), frozenset("B"), frozenset("BC"), frozenset("ABC")]
    now, last, number = 0.0, 0, 0
    for verb, n, delay in steps:
        job = f"j{n}"
        now += delay
        if verb == "join" or (verb != "wait" and job not in gate.seats):
            gate.join(job, nics=cards[n], gpus=1, weight=1.0, now=now)
        elif verb == "ask":
            number += 1
            gate.ask(job, an_ask(number, 4e5, compute_seconds=0.5, iterations_left=5.0), now)
        elif verb == "done" and gate.seats[job].lease is not None:
            gate.done(job, gate.seats[job].lease.fence, 0.4, now)
        elif verb == "cancel":
            gate.cancel(job, now)
        elif verb == "leave":
            gate.leave(job, now)
        for grant in gate.settle(now):
            if grant.fence:
                assert grant.fence > last
                last = grant.fence
        for nic in gate.nics.values():
            holders = {
                j
                for j, s in gate.seats.items()
                if s.lease is not None and nic.name in s.lease.servers and not s.lease.is_handed_over
            }
            assert nic.in_flight == holders
            assert len(holders) <= gate.policy.max_at_once
        assert all(s.lease is None or s.lease.deadline > now for s in gate.seats.values())
    # When only waiting jobs are left, all of them are served.
    for _ in range(50):
        wake = gate.next_wake(now)
        if wake is None:
            break
        now = max(now, wake)
        gate.settle(now)
    assert not [s for s in gate.seats.values() if s.ask is not None]


@pytest.mark.parametrize(("fills", "sends"), [(True, ["a", "b", "c"]), (False, ["a"])])
def test_messages_fill_idle_cards_if_the_setting_allows_it(fills: bool, sends: list[str]) -> None:
    """Of three jobs on two of three hosts each, all send with filling and one sends without."""
    settings = GateSettings(link=LINK, bucket_bytes=1e6, is_always_on=True, fills_idle_cards=fills)
    gate = Broker(settings)
    for job, cards in {"a": "12", "b": "23", "c": "13"}.items():
        gate.join(job, nics=frozenset(cards), gpus=2, weight=1.0, now=0.0)
    gate.take_plan(dict.fromkeys("abc", 100.0))
    for job in "abc":
        gate.ask(job, SendRequest(id=1, ready_bytes=5e6, message_bytes=5e6), 0.0)

    assert [grant.job for grant in gate.settle(0.0)] == sends


@pytest.mark.parametrize(
    ("patience_seconds", "beside", "after"), [(60.0, ["b", "c"], []), (0.5, [], ["old", "b", "c"])]
)
def test_no_message_fills_a_card_that_an_overdue_job_waits_for(
    patience_seconds: float, beside: list[str], after: list[str]
) -> None:
    """Otherwise the overdue job would wait for two more messages instead of one."""
    gate = a_gate(policy="ada-srsf-buckets", bucket_bytes=1e6, patience_seconds=patience_seconds)
    for job, cards in {"a": "12", "b": "23", "c": "13", "old": "12"}.items():
        gate.join(job, nics=frozenset(cards), gpus=2, weight=1.0, now=0.0)
    gate.take_plan({"a": 100.0, "b": 100.0, "c": 100.0, "old": 1e6})
    gate.ask("a", an_ask(), 0.0)
    (first,) = gate.settle(0.0)
    gate.ask("old", an_ask(), 0.0)
    assert gate.settle(0.0) == []
    for job in "bc":
        gate.ask(job, an_ask(), 0.7)

    assert jobs_of(gate.settle(0.7)) == beside
    gate.done("a", first.fence, 1.0, 1.0)
    assert jobs_of(gate.settle(1.0)) == after


@settings(deadline=None, max_examples=sampled(60))
@given(steps=STEPS, others=st.integers(1, 12), policy=st.sampled_from(["ada-srsf", "ada-srsf-buckets"]))
def test_jobs_on_unlinked_cards_do_not_change_each_others_grants(
    steps: list[tuple[str, int, float]], others: int, policy: str
) -> None:
    """Grants on three hosts are the same with and without busy jobs on other hosts."""
    ways = {}
    for elsewhere in (0, others):
        gate = a_gate(policy=policy, bucket_bytes=2e5, is_always_on=True, evaluate_seconds=1e9)
        for n in range(elsewhere):
            for job in (f"x{n}", f"y{n}"):
                gate.join(job, nics=frozenset({f"left-{n}", f"right-{n}"}), gpus=1, weight=1.0, now=0.0)
                gate.ask(job, an_ask(1, 4e5, compute_seconds=0.01, iterations_left=1.0), 0.0)
        gate.settle(0.0)
        ways[elsewhere] = grants_of(gate, steps)

    assert ways[0] == ways[others]


def grants_of(gate: Broker, steps: list[tuple[str, int, float]]) -> list[tuple[str, int, float, int]]:
    """Return the grants of jobs on three hosts that send requests and reports in these steps."""
    cards = [frozenset("AB"), frozenset("BC"), frozenset("AC"), frozenset("AB"), frozenset("BC")]
    for n, on in enumerate(cards):
        gate.join(f"j{n}", nics=on, gpus=1, weight=1.0, now=0.0)
    now, found = 0.0, []
    for number, (verb, n, delay) in enumerate(steps):
        job = f"j{n}"
        now += 0.01 * delay
        lease = gate.seats[job].lease
        if verb == "done" and lease is not None:
            gate.done(job, lease.fence, 0.4, now)
        elif verb != "wait":
            left = float(1 + n % 3)
            gate.ask(job, an_ask(number, 4e5, compute_seconds=0.5, iterations_left=left), now)
        found += [
            (g.job, g.id, g.bytes, g.free_iterations) for g in gate.settle(now) if g.job.startswith("j")
        ]
    return found


def test_unlinked_groups_of_cards_are_judged_separately() -> None:
    """A group whose jobs have not measured anything yet does not delay the other group's verdict."""
    gate = a_gate(policy="ada-srsf-buckets", is_always_on=False, evaluate_seconds=1.0)
    for job, on in {"a": "AB", "b": "AB", "new": "CD", "other": "CD"}.items():
        seat(gate, job, nics=on)
    measured = {"compute_seconds": 0.1, "exposed_seconds": 0.5, "round_trip_seconds": 1e-4}
    for number in range(1, 4):
        for job in ("a", "b"):
            gate.ask(job, an_ask(number, 5e5, iterations_left=9.0, **measured), 0.0)
        for job in ("new", "other"):
            gate.ask(job, an_ask(number, 5e5), 0.0)
        gate.settle(0.0)
    gate.settle(2.0)
    why = {name: nic.verdict.why for name, nic in gate.nics.items() if nic.verdict is not None}

    assert "learning: 2 of 2 jobs" in why["C"]
    assert "learning" not in why["A"]
    assert gate.gains.keys() == {"a", "b"}


def test_a_request_at_a_large_site_considers_only_linked_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 400 pairs of jobs, the policy sees one pair at a time."""
    asked: list[tuple[int, int]] = []
    admit = LinkPolicy.admit

    def noting(self: LinkPolicy, waiting: Sequence[Message], in_flight: Sequence[Message]) -> Admission:
        asked.append((len(waiting), len(in_flight)))
        return admit(self, waiting, in_flight)

    monkeypatch.setattr(LinkPolicy, "admit", noting)
    gate = a_gate(policy="ada-srsf-buckets", evaluate_seconds=1e9)
    for n in range(800):
        gate.join(f"j{n}", nics=frozenset({f"left-{n // 2}", f"right-{n // 2}"}), gpus=1, weight=1.0, now=0.0)
        gate.ask(f"j{n}", an_ask(), 0.0)
        gate.settle(0.0)

    assert len(gate._leasing) == 400
    assert set(asked) == {(1, 0), (1, 1)}


def play_two(gate: Broker, *, in_order_seconds: float, at_once_seconds: float, until: float) -> None:
    """Play two jobs with these iteration times in order and at once, whatever the model expects."""
    seat(gate, "short", "long")
    left = {"short": 2000, "long": 4000}
    asks_at = {"short": 0.0, "long": 0.05}
    ends: list[tuple[float, str, int]] = []
    for number in count():
        now = min([*asks_at.values(), *(end for end, _, _ in ends)])
        if now > until:
            return
        for end in [end for end in ends if end[0] <= now]:
            ends.remove(end)
            gate.done(end[1], end[2], 0.1, now)
        for job in [job for job, at in asks_at.items() if at <= now]:
            # The job computes for 100 ms; its message alone takes as long.
            measured = {"compute_seconds": 0.1, "exposed_seconds": 0.1, "round_trip_seconds": 0.001}
            gate.ask(job, an_ask(number, size=1e5, iterations_left=float(left[job]), **measured), now)
            asks_at[job] = math.inf
        for grant in gate.settle(now):
            went = max(1, grant.free_iterations)
            left[grant.job] -= went
            if grant.fence:
                heapq.heappush(ends, (now + 1e-3, grant.job, grant.fence))
            asks_at[grant.job] = now + went * (at_once_seconds if grant.free_iterations else in_order_seconds)


@pytest.mark.parametrize(("at_once_seconds", "is_on"), [(0.2, False), (0.3, True)])
def test_ordering_stays_on_only_if_it_beats_measured_iterations_at_once(
    at_once_seconds: float, is_on: bool
) -> None:
    """In order an iteration takes 0.25 s; the model alone would keep ordering in both cases."""
    gate = a_gate(policy="ada-srsf-buckets", is_always_on=False)
    play_two(gate, in_order_seconds=0.25, at_once_seconds=at_once_seconds, until=20.0)

    assert {nic.is_on for nic in gate.nics.values()} == {is_on}
    assert all(seat.timed[True] >= 4 and seat.timed[False] >= 4 for seat in gate.seats.values())


def test_a_new_neighbour_discards_the_measured_iteration_times() -> None:
    """Times measured with two jobs do not hold for three, so the cards are learning again."""
    gate = a_gate(policy="ada-srsf-buckets", is_always_on=False)
    play_two(gate, in_order_seconds=0.25, at_once_seconds=0.2, until=20.0)
    seat(gate, "third", now=20.0)

    assert not any(seat.paces for seat in gate.seats.values())
    assert all(nic.is_on and "learning" in nic.verdict.why for nic in gate.nics.values() if nic.verdict)
