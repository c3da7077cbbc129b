import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paper_jobs import PAPER_CLUSTER, paper_jobs
from sampling import sampled

from boa_daemon.lab.network import kernel
from boa_daemon.lab.network.messages import bytes_left_now
from boa_daemon.lab.network.model import Cluster, Experiment, NetworkJob, NetworkOutcome
from boa_daemon.lab.network.simulate import rules_of, simulate
from boa_daemon.lab.network.state import FRESH, SENDING, TOUCHED, WAITING, LinkRules, State, rank_of
from policies.errors import InvalidProblem
from policies.links.ada_srsf import LINK_POLICIES, STRICT_LINK_POLICIES, Message, link_policy
from policies.links.contention import ETHERNET_10G, Link

LINK = Link(latency_seconds=0.0, seconds_per_byte=1.0, contention_seconds_per_byte=0.5)
"""Alone 1 s a byte, two at once 2.5 s each; the AdaDUAL threshold is 1/3."""


def a_job(name: str, **change: object) -> NetworkJob:
    """Return a job with two workers and one iteration: 1 s forward, 1 s backward, 4 bytes."""
    job = NetworkJob(
        id=name, gpus=2, iterations=1, forward_seconds=1.0, backward_seconds=1.0, message_bytes=4.0
    )
    return replace(job, **change)


def two_across(policy: str, *jobs: NetworkJob, link: Link = LINK, **settings: float) -> list[float]:
    """Return when jobs end that each have one worker, on a GPU of its own, on both servers."""
    cluster = Cluster(servers=2, gpus_per_server=len(jobs), gpu_memory_bytes=1.0)
    pinned = {number: (number, len(jobs) + number) for number in range(len(jobs))}
    experiment = Experiment(
        cluster=cluster, jobs=jobs, link_policy=link_policy(policy, link, **settings), pinned=pinned
    )
    return simulate(experiment, engine="python").finished_at.tolist()


def on_one_gpu(*jobs: NetworkJob, memory: float = 10.0, shared: bool = True) -> list[float]:
    cluster = Cluster(servers=1, gpus_per_server=1, gpu_memory_bytes=memory, shared_gpus=shared)
    experiment = Experiment(cluster=cluster, jobs=jobs, link_policy=link_policy("srsf-1", LINK))
    return simulate(experiment, engine="python").finished_at.tolist()


def test_one_job_computes_then_sends() -> None:
    """1 s forward, 1 s backward, then latency plus bytes times seconds per byte."""
    link = replace(ETHERNET_10G)
    assert two_across("ada-srsf", a_job("0"), link=link) == [2.0 + (0.000669 + 8.56e-10 * 4)]


def test_messages_within_one_server_take_no_time() -> None:
    """Three iterations of 2 s end after 6 s."""
    experiment = Experiment(
        cluster=Cluster(servers=1, gpus_per_server=2, gpu_memory_bytes=1.0),
        jobs=(a_job("0", iterations=3),),
        link_policy=link_policy("srsf-1", LINK),
    )
    assert simulate(experiment).finished_at.tolist() == [6.0]


@pytest.mark.parametrize(
    ("policy", "first", "second"),
    [
        ("srsf-1", 2 + 4, 2 + 4 + 4),
        ("srsf-2", 2 + 4 * 2.5, 2 + 4 * 2.5),
        ("srsf-3", 2 + 4 * 2.5, 2 + 4 * 2.5),
        ("ada-srsf", 2 + 4, 2 + 4 + 4),
        ("srsf-preemptive", 2 + 4, 2 + 4 + 4),
    ],
)
def test_two_equal_jobs_on_one_link_send_in_the_policys_order(
    policy: str, first: float, second: float
) -> None:
    """Among equal jobs the first in the case sends first."""
    assert two_across(policy, a_job("0"), a_job("1")) == [first, second]


@pytest.mark.parametrize(
    ("policy", "size", "first", "second"),
    [
        # Ready at 3, when the other has 3 bytes left: 0.9 / 3 < 1/3 overlaps, 1.1 / 3 waits until 6.
        ("ada-srsf", 0.9, 3 + 0.9 * 2.5 + 2.1, 3 + 0.9 * 2.5),
        ("ada-srsf", 1.1, 6.0, 6 + 1.1),
        ("srsf-1", 0.9, 6.0, 6 + 0.9),
        ("srsf-2", 1.1, 3 + 1.1 * 2.5 + 1.9, 3 + 1.1 * 2.5),
        # The new job has less service left (2.2 against 8 GPU-seconds), so its message pauses the old one.
        ("srsf-preemptive", 1.1, 2 + 4 + 1.1, 3 + 1.1),
        # The same at the end of a one-byte bucket, which is at 3.
        ("ada-srsf-buckets", 1.1, 2 + 4 + 1.1, 3 + 1.1),
    ],
)
def test_a_small_message_beside_a_large_one_follows_the_policy(
    policy: str, size: float, first: float, second: float
) -> None:
    """The second job arrives a second later."""
    late = a_job("1", arrived_at_seconds=1.0, message_bytes=size)
    settings = {"bucket_bytes": 1.0} if policy == "ada-srsf-buckets" else {}
    assert two_across(policy, a_job("0"), late, **settings) == pytest.approx([first, second], rel=1e-12)


def test_to_the_letter_no_message_passes_one_that_waits() -> None:
    """B waits for A's message until 6. C is worse and its servers are idle: it may pass B, or not."""
    jobs = (a_job("A"), a_job("B"), a_job("C", weight=0.1))
    experiment = Experiment(
        cluster=Cluster(servers=4, gpus_per_server=2, gpu_memory_bytes=1.0),
        jobs=jobs,
        link_policy=link_policy("srsf-1", LINK),
        pinned={0: (0, 2), 1: (1, 3), 2: (4, 6)},
    )
    strict = replace(experiment, link_policy=link_policy("srsf-1", LINK, is_strict=True))

    assert simulate(experiment).finished_at.tolist() == [6.0, 10.0, 6.0]
    assert simulate(strict).finished_at.tolist() == [6.0, 10.0, 10.0]


def test_each_message_and_each_bucket_takes_the_latency_once() -> None:
    """Four bytes take the latency once as a whole, and four times in one-byte buckets."""
    link = replace(LINK, latency_seconds=0.25)
    assert two_across("srsf-1", a_job("0"), link=link) == [2 + 0.25 + 4]
    assert two_across("ada-srsf-buckets", a_job("0"), link=link, bucket_bytes=1.0) == [2 + 4 * (0.25 + 1)]
    assert two_across("srsf-2", a_job("0"), a_job("1"), link=link) == [2 + 0.25 + 4 * 2.5] * 2


def test_a_message_moves_at_the_pace_of_its_most_crowded_server() -> None:
    """Three jobs share server 0, and each has its other worker on an own server."""
    jobs = tuple(a_job(name) for name in "abc")
    experiment = Experiment(
        cluster=Cluster(servers=4, gpus_per_server=3, gpu_memory_bytes=1.0),
        jobs=jobs,
        link_policy=link_policy("srsf-3", LINK),
        pinned={0: (0, 3), 1: (1, 6), 2: (2, 9)},
    )
    assert simulate(experiment).finished_at.tolist() == [2 + 4 * (3 * 1.0 + 2 * 0.5)] * 3


def test_a_gpu_runs_the_job_with_the_least_service_left() -> None:
    """With 2 s of A left, B with 1.9 s overtakes A, and B with 2 s does not."""
    a = a_job("A", gpus=1, iterations=2)
    b = a_job("B", gpus=1, arrived_at_seconds=1.5)
    assert on_one_gpu(a, b) == [4.0, 6.0]
    assert on_one_gpu(a, replace(b, forward_seconds=0.9)) == pytest.approx([5.9, 3.9])


def test_jobs_share_a_gpu_within_its_memory() -> None:
    """Two jobs of 6 bytes do not fit into 10, so the second waits for the first; they fit into 12."""
    jobs = [a_job(name, gpus=1, memory_bytes=6.0, iterations=2) for name in "ab"]
    assert on_one_gpu(*jobs) == [4.0, 8.0]
    late = replace(jobs[1], iterations=1, arrived_at_seconds=1.0)
    assert on_one_gpu(jobs[0], late) == [4.0, 6.0]
    assert on_one_gpu(jobs[0], late, memory=12.0) == [6.0, 4.0 - 1.0]


def test_a_gpu_that_is_not_shared_holds_one_job() -> None:
    jobs = [a_job(name, gpus=1, iterations=2) for name in "ab"]
    late = replace(jobs[1], iterations=1, arrived_at_seconds=1.0)
    assert on_one_gpu(jobs[0], late, shared=False) == [4.0, 6.0]


def test_the_queued_job_with_the_least_compute_starts_first() -> None:
    """While a job holds both GPUs, a wide and a small job arrive; the small one starts first."""
    cluster = Cluster(servers=1, gpus_per_server=2, gpu_memory_bytes=1.0)
    jobs = (
        a_job("holder", iterations=2, memory_bytes=1.0),
        a_job("wide", arrived_at_seconds=1.0, memory_bytes=1.0),
        a_job("small", gpus=1, arrived_at_seconds=1.5, memory_bytes=1.0),
    )
    experiment = Experiment(cluster=cluster, jobs=jobs, link_policy=link_policy("srsf-1", LINK))
    assert simulate(experiment).finished_at.tolist() == [4.0, 8.0, 6.0]


def test_times_that_differ_by_rounding_are_one_instant() -> None:
    """Steps of 0.1 + 0.2 and of 0.3 end together, so the smaller job's message goes first."""
    slow = a_job("0", forward_seconds=0.3, backward_seconds=0.0, message_bytes=5.0)
    quick = a_job("1", forward_seconds=0.1, backward_seconds=0.2, message_bytes=1.0)
    assert two_across("srsf-1", slow, quick) == pytest.approx([0.3 + 1 + 5, 0.3 + 1])


@st.composite
def experiments(draw: st.DrawFn, *, names: tuple[str, ...] = tuple(sorted(LINK_POLICIES))) -> Experiment:
    """Draw small clusters with up to seven jobs, any placer and any link policy."""
    servers, per_server = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    seconds = st.sampled_from([0.0, 0.1, 0.25, 1.0, 1.7])
    jobs = tuple(
        NetworkJob(
            id=str(number),
            gpus=draw(st.integers(1, servers * per_server)),
            iterations=draw(st.integers(1, 4)),
            forward_seconds=draw(seconds),
            backward_seconds=draw(seconds),
            message_bytes=draw(st.sampled_from([0.0, 0.3, 1.0, 2.5, 9.0])),
            memory_bytes=draw(st.sampled_from([0.0, 3.0, 4.0, 10.0])),
            arrived_at_seconds=draw(st.sampled_from([0.0, 0.5, 1.0, 4.0])),
            weight=draw(st.sampled_from([1.0, 1.0, 3.0])),
        )
        for number in range(draw(st.integers(1, 7)))
    )
    link = Link(
        latency_seconds=draw(st.sampled_from([0.0, 0.05])),
        seconds_per_byte=1.0,
        contention_seconds_per_byte=draw(st.sampled_from([0.0, 0.3, 1.0])),
    )
    name = draw(st.sampled_from(names))
    return Experiment(
        cluster=Cluster(
            servers=servers,
            gpus_per_server=per_server,
            gpu_memory_bytes=10.0,
            shared_gpus=draw(st.booleans()),
        ),
        jobs=jobs,
        link_policy=link_policy(
            name,
            link,
            is_strict=name in STRICT_LINK_POLICIES and draw(st.booleans()),
            bucket_bytes=draw(st.sampled_from([0.7, 1.0, 4.0])),
            max_wait_seconds=draw(st.sampled_from([math.inf, math.inf, 0.0, 2.0])),
        ),
        placer=draw(st.sampled_from(["lwf", "first-fit", "random", "list-scheduling"])),
        kappa=draw(st.integers(1, 4)),
    )


def spans(experiment: Experiment, outcome: NetworkOutcome, job: int) -> bool:
    return len({gpu // experiment.cluster.gpus_per_server for gpu in outcome.placement[job]}) > 1


@given(experiments())
@settings(max_examples=sampled(150), suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_simulated_work_memory_and_durations_are_consistent(experiment: Experiment) -> None:
    """Busy time and events match the jobs, no job is faster than alone, and GPUs are not overfilled."""
    outcome = simulate(experiment, engine="python")
    link, cluster = experiment.link_policy.link, experiment.cluster
    work, events = 0.0, 0
    for number, job in enumerate(experiment.jobs):
        each = job.forward_seconds + job.backward_seconds
        work += job.iterations * each * job.gpus
        events += 2 * job.iterations * job.gpus
        if spans(experiment, outcome, number):
            each += link.seconds(job.message_bytes)
            events += job.iterations * max(
                1, math.ceil(job.message_bytes / experiment.link_policy.bucket_bytes)
            )
        assert outcome.placed_at[number] >= job.arrived_at_seconds
        assert outcome.finished_at[number] >= outcome.placed_at[number] + job.iterations * each - 1e-9
        assert len(set(outcome.placement[number])) == job.gpus
    assert outcome.busy_seconds.sum() == pytest.approx(work)
    assert outcome.busy_seconds.max() <= outcome.makespan_seconds + 1e-9
    assert outcome.events == events
    assert outcome.least_slack_seconds >= -1e-9
    for at in outcome.placed_at:
        here = [
            number
            for number in range(len(experiment.jobs))
            if outcome.placed_at[number] <= at < outcome.finished_at[number]
        ]
        for gpu in range(cluster.gpus):
            jobs = [experiment.jobs[number] for number in here if gpu in outcome.placement[number]]
            assert sum(job.memory_bytes for job in jobs) <= cluster.gpu_memory_bytes
            assert cluster.shared_gpus or len(jobs) <= 1


@given(experiments())
@settings(max_examples=sampled(50), suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_the_same_case_gives_the_same_result(experiment: Experiment) -> None:
    assert simulate(experiment).as_json() == simulate(experiment).as_json()


@given(experiments(names=("ada-srsf",)))
@settings(max_examples=sampled(100), suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_threshold_zero_is_srsf_1_and_infinity_is_srsf_2(experiment: Experiment) -> None:
    """AdaDUAL with these thresholds gives exactly their results."""
    policy = experiment.link_policy
    for threshold, name in ((0.0, "srsf-1"), (math.inf, "srsf-2")):
        other = link_policy(name, policy.link, max_wait_seconds=policy.max_wait_seconds)
        ours = simulate(replace(experiment, link_policy=replace(policy, threshold=threshold)))
        theirs = simulate(replace(experiment, link_policy=other))
        assert ours.as_json() == theirs.as_json()


@given(experiments())
@settings(
    max_examples=sampled(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_the_kernel_admits_what_the_policy_says(experiment: Experiment) -> None:
    """Whenever a message starts or ends, the kernel starts and pauses the same messages as `LinkPolicy`."""
    honest = kernel.admit

    def checked(c: LinkRules, s: State) -> None:
        fresh = set(s.fresh[: s.counter[FRESH]])
        before = {job for job, status in enumerate(s.status) if status == SENDING and job not in fresh}
        messages = {
            job: Message(
                job=str(job),
                servers=frozenset(s.server_at[s.first_slot[job] : s.first_slot[job] + s.servers[job]]),
                bytes_left=bytes_left_now(c, s, job) if job in before else s.bytes_left[job],
                service_seconds=rank_of(c, s, job) * s.weight[job],
                weight=s.weight[job],
                waited_seconds=s.now[0] - s.ready_at[job],
            )
            for job in range(len(experiment.jobs))
            if job in fresh or s.status[job] in {WAITING, SENDING}
        }
        decision = experiment.link_policy.admit(
            [message for job, message in messages.items() if job not in before],
            [messages[job] for job in sorted(before)],
        )
        changed = s.counter[FRESH] > 0 or s.counter[TOUCHED] > 0
        honest(c, s)
        if not changed:
            # A message may have become overdue; the kernel considers it when the next one starts or ends.
            return
        after = {job for job in messages if s.status[job] == SENDING}
        assert after - before == {int(job) for job in decision.start}
        assert before - after == {int(job) for job in decision.pause}

    kernel.admit = checked
    try:
        simulate(experiment, engine="python")
    finally:
        kernel.admit = honest


@pytest.mark.exhaustive  # The first case compiles the simulator for half a minute.
@pytest.mark.parametrize("name", sorted(LINK_POLICIES))
def test_compiled_and_plain_runs_give_identical_results(name: str) -> None:
    """The paper's workload at a hundredth of its length."""
    experiment = Experiment(
        cluster=PAPER_CLUSTER, jobs=paper_jobs(7, scale=0.01), link_policy=link_policy(name, ETHERNET_10G)
    )
    plain, fast = (simulate(experiment, engine=engine) for engine in ("python", "compiled"))
    assert np.array_equal(plain.finished_at, fast.finished_at)
    assert np.array_equal(plain.busy_seconds, fast.busy_seconds)
    assert plain.placement == fast.placement
    assert plain.events == fast.events


@pytest.mark.exhaustive
def test_placement_matters_more_than_message_order() -> None:
    """Over five workloads first-fit takes over 1.5 times as long as LWF-1; SRSF(2) at most 1.3 times."""

    def mean(placer: str, policy: str) -> float:
        return float(
            np.mean(
                [
                    simulate(
                        Experiment(
                            cluster=PAPER_CLUSTER,
                            jobs=paper_jobs(seed, scale=0.005),
                            link_policy=link_policy(policy, ETHERNET_10G),
                            placer=placer,
                        ),
                        engine="python",
                    ).jct.mean()
                    for seed in range(1, 6)
                ]
            )
        )

    best = mean("lwf", "srsf-1")
    assert mean("first-fit", "srsf-1") / best > 1.5
    assert mean("lwf", "srsf-2") / best < 1.3
    assert mean("lwf", "ada-srsf-buckets") / best < 1.0


def test_the_heavier_of_two_equal_jobs_sends_first() -> None:
    """The kernel uses the jobs' weights."""
    assert two_across("srsf-1", a_job("0"), a_job("1", weight=2.0)) == [10.0, 6.0]


def test_a_job_that_never_fits_is_refused() -> None:
    """Experiments built in Python are checked like case files."""
    with pytest.raises(InvalidProblem, match="'0' does not fit"):
        on_one_gpu(a_job("0", gpus=2))


def test_the_kernels_rules_follow_from_the_link_policy() -> None:
    rules = rules_of(link_policy("ada-srsf-queue", LINK, max_wait_seconds=3.0))
    assert (rules.max_at_once, rules.max_wait, rules.preempts) == (2, 3.0, False)
