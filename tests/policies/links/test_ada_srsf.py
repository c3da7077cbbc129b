import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unnamed import by_place, hidden, hurried, unnamed

import policies.links
from policies.errors import InvalidProblem, UnknownPolicy
from policies.links.ada_srsf import (
    DEFAULT_LINK_POLICY,
    LINK_POLICIES,
    STRICT_LINK_POLICIES,
    LinkPolicy,
    Message,
    default_bucket_bytes,
    link_policy,
)
from policies.links.contention import ETHERNET_10G, Link

LINK = Link(latency_seconds=0.0, seconds_per_byte=1.0, contention_seconds_per_byte=0.5)
"""Its AdaDUAL threshold is 1 / (2 * 1.5) = 1/3."""


def a_message(job: str, servers: str, size: float = 4.0, service: float = 1.0, **more: float) -> Message:
    return Message(job=job, servers=frozenset(servers), bytes_left=size, service_seconds=service, **more)


@st.composite
def ready(draw: st.DrawFn) -> list[Message]:
    """Draw up to eight messages over four servers."""
    servers = st.frozensets(st.sampled_from("wxyz"), min_size=2, max_size=4)
    return [
        Message(
            job=str(number),
            servers=draw(servers),
            bytes_left=draw(st.floats(0.1, 10.0)),
            service_seconds=draw(st.floats(0.1, 10.0)),
            weight=draw(st.floats(0.5, 2.0)),
            waited_seconds=draw(st.floats(0.0, 10.0)),
        )
        for number in range(draw(st.integers(1, 8)))
    ]


def test_the_job_with_the_least_service_left_sends_first() -> None:
    """On one link under SRSF(1) the small job sends, and the other waits."""
    waiting = [a_message("large", "xy", service=9.0), a_message("small", "xy", service=2.0)]
    assert link_policy("srsf-1", LINK).admit(waiting, []).start == ("small",)


def test_weight_divides_service() -> None:
    """Service 9 with weight 9 ranks before service 2 with weight 1."""
    waiting = [a_message("small", "xy", service=2.0), a_message("heavy", "xy", service=9.0, weight=9.0)]
    assert link_policy("srsf-1", LINK).admit(waiting, []).start == ("heavy",)


def test_messages_on_disjoint_servers_start_together() -> None:
    """The better rank starts first."""
    waiting = [a_message("b", "xy", service=2.0), a_message("a", "vw", service=1.0)]
    assert link_policy("srsf-1", LINK).admit(waiting, []).start == ("a", "b")


@pytest.mark.parametrize("name", STRICT_LINK_POLICIES)
def test_to_the_letter_the_first_message_that_may_not_start_ends_the_line(name: str) -> None:
    """The worst message has idle servers, and waits behind one that has none."""
    most = int(name.removeprefix("srsf-"))
    flying = [a_message(f"f{number}", "xy") for number in range(most)]
    waiting = [
        a_message("best", "vw", service=1.0),
        a_message("next", "xy", service=2.0),
        a_message("worst", "rs", service=3.0),
    ]

    assert link_policy(name, LINK).admit(waiting, flying).start == ("best", "worst")
    assert link_policy(name, LINK, is_strict=True).admit(waiting, flying).start == ("best",)


@pytest.mark.parametrize("name", sorted(set(LINK_POLICIES) - set(STRICT_LINK_POLICIES)))
def test_other_policies_have_no_strict_reading(name: str) -> None:
    with pytest.raises(InvalidProblem, match="srsf-1, srsf-2, srsf-3 have one"):
        link_policy(name, LINK, is_strict=True)


@pytest.mark.parametrize(("n", "starts"), [(1, 1), (2, 2), (3, 3)])
def test_srsf_n_admits_n_messages_on_a_server(n: int, starts: int) -> None:
    waiting = [a_message(str(i), "xy", service=float(i)) for i in range(5)]
    assert len(link_policy(f"srsf-{n}", LINK).admit(waiting, []).start) == starts


def test_adadual_admits_a_small_message_beside_a_large_one() -> None:
    """0.9 bytes beside 3 bytes left are below 1/3; 1.1 bytes are not."""
    flying = [a_message("old", "xy", size=3.0)]
    policy = link_policy("ada-srsf", LINK)
    assert policy.admit([a_message("new", "xy", size=0.9)], flying).start == ("new",)
    assert policy.admit([a_message("new", "xy", size=1.1)], flying).start == ()


def test_adadual_tests_the_messages_on_every_server() -> None:
    """The new message is small beside the one on x and large beside the one on y, so it waits."""
    flying = [a_message("long", "xv", size=9.0), a_message("short", "yw", size=1.0)]
    assert link_policy("ada-srsf", LINK).admit([a_message("new", "xy", size=0.9)], flying).start == ()


def test_adadual_never_admits_a_third_message() -> None:
    flying = [a_message("a", "xy", size=90.0), a_message("b", "xz", size=9.0)]
    assert link_policy("ada-srsf", LINK).admit([a_message("new", "xw", size=0.1)], flying).start == ()


def test_the_weighted_rule_favours_the_job_that_is_nearly_done() -> None:
    """The ratio 0.5 is over 1/3; with weights 1/1 and 1/99 the threshold is 0.99 / 1.5 = 0.66."""
    flying = [a_message("old", "xy", size=4.0, service=99.0)]
    waiting = [a_message("new", "xy", size=2.0, service=1.0)]
    assert link_policy("ada-srsf", LINK).admit(waiting, flying).start == ()
    assert link_policy("ada-srsf-weighted", LINK).admit(waiting, flying).start == ("new",)


def test_the_queue_aware_rule_counts_waiting_messages() -> None:
    """At a ratio of 0.3 the threshold is 1/3 alone; with two behind it is 1 / (3 + 2 * 0.5) = 0.25."""
    flying = [a_message("old", "xy", size=10.0)]
    new = a_message("new", "xy", size=3.0, service=0.0)
    behind = [a_message(name, "xy", size=9.0, service=5.0) for name in "ab"]
    policy = link_policy("ada-srsf-queue", LINK)
    assert policy.admit([new], flying).start == ("new",)
    assert policy.admit([new, *behind], flying).start == ()


def test_a_preemptive_policy_pauses_a_worse_message() -> None:
    """The paused job's other server becomes free for the next message."""
    flying = [a_message("worse", "xy", service=9.0)]
    waiting = [a_message("better", "yz", service=1.0), a_message("third", "xv", service=20.0)]

    decision = link_policy("srsf-preemptive", LINK).admit(waiting, flying)

    assert decision.start == ("better", "third")
    assert decision.pause == ("worse",)


def test_an_overdue_message_reserves_its_servers() -> None:
    """One of its servers is busy; no other message may start on the other server, whatever its rank."""
    flying = [a_message("busy", "yz")]
    waiting = [
        a_message("late", "xy", service=99.0, waited_seconds=11.0),
        a_message("quick", "xv", service=0.1),
        a_message("elsewhere", "uw", service=5.0),
    ]
    assert link_policy("srsf-1", LINK).admit(waiting, flying).start == ("quick", "elsewhere")
    patient = link_policy("srsf-1", LINK, max_wait_seconds=10.0)
    assert patient.admit(waiting, flying).start == ("elsewhere",)


def test_a_large_job_starves_only_without_ageing() -> None:
    """Small messages keep one of its two servers busy at any time; ageing bounds the wait.

    Small messages of one second become ready on x at even and on y at odd half-seconds, so x and y are never
    free together. With a patience of 10 s the large message waits at most 10 s and the end of the message in
    flight.
    """

    def wait_of_the_large(max_wait: float) -> float:
        policy = link_policy("srsf-1", LINK, max_wait_seconds=max_wait)
        ends: dict[str, float] = {}
        for tick in range(200):
            now = tick / 2
            ends = {job: end for job, end in ends.items() if end > now}
            server = "x" if tick % 2 == 0 else "y"
            waiting = [
                a_message("large", "xy", service=99.0, waited_seconds=now),
                a_message(f"{server}{tick}", server, service=0.1),
            ]
            flying = [a_message(job, job[0]) for job in ends]
            for job in policy.admit(waiting, flying).start:
                if job == "large":
                    return now
                ends[job] = now + 1.0
        return math.inf

    assert wait_of_the_large(math.inf) == math.inf
    assert wait_of_the_large(10.0) <= 10.0 + 1.0 + 0.5


@given(ready(), st.sampled_from(sorted(LINK_POLICIES)))
def test_no_server_carries_more_than_the_policy_allows(waiting: list[Message], name: str) -> None:
    policy = link_policy(name, LINK)
    started = [message for message in waiting if message.job in policy.admit(waiting, []).start]
    for server in "wxyz":
        assert sum(server in message.servers for message in started) <= policy.max_at_once


@given(ready())
def test_threshold_zero_is_srsf_1_and_infinity_is_srsf_2(
    waiting: list[Message],
) -> None:
    never = link_policy("ada-srsf", LINK, threshold=0.0).admit(waiting, [])
    always = link_policy("ada-srsf", LINK, threshold=math.inf).admit(waiting, [])
    assert never == link_policy("srsf-1", LINK).admit(waiting, [])
    assert always == link_policy("srsf-2", LINK).admit(waiting, [])


@given(ready(), st.sampled_from(sorted(LINK_POLICIES)))
def test_no_message_waits_while_its_servers_are_free(waiting: list[Message], name: str) -> None:
    """Without ageing, a waiting message shares a server with a message in flight."""
    decision = link_policy(name, LINK).admit(waiting, [])
    busy = {server for message in waiting if message.job in decision.start for server in message.servers}
    for message in waiting:
        assert message.job in decision.start or not busy.isdisjoint(message.servers)


def test_the_default_link_policy_is_a_known_one_with_buckets_of_25_mb() -> None:
    """The paper's plain rule is `ada-srsf`, with a threshold of 1/3 here."""
    assert DEFAULT_LINK_POLICY in LINK_POLICIES
    assert link_policy("ada-srsf", LINK).threshold == pytest.approx(1 / 3)
    assert link_policy(DEFAULT_LINK_POLICY, LINK).bucket_bytes == 25_000_000


def test_a_default_bucket_takes_thirty_latencies_or_is_25_mb() -> None:
    """At 10 Gbit/s 30 x 0.669 ms are 23 MB, so the bucket is 25 MB; at 100 Gbit/s it is 234 MB."""
    assert default_bucket_bytes(ETHERNET_10G) == 25_000_000
    assert default_bucket_bytes(Link.of_gigabits(100.0)) == pytest.approx(30 * 6.69e-4 / 8.56e-11)


def test_an_unknown_policy_lists_the_known_ones() -> None:
    with pytest.raises(UnknownPolicy, match="ada-srsf-buckets"):
        link_policy("srsf", LINK)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_at_once": 0},
        {"threshold": -1.0},
        {"threshold": math.nan},
        {"bucket_bytes": 0.0},
        {"max_wait_seconds": -1.0},
        {"preempts": True},
    ],
)
def test_invalid_link_policies_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidProblem):
        LinkPolicy(link=LINK, **wrong)


def test_a_new_message_has_waited_zero_seconds() -> None:
    """Its default weight is 1; the rank is service over weight."""
    assert a_message("a", "wx") == a_message("a", "wx", weight=1.0, waited_seconds=0.0)
    assert a_message("a", "wx", service=3.0, weight=2.0).rank == 1.5


def test_only_these_defaults_are_not_empty() -> None:
    """In all of `policies.links`: no default has a waiting limit or preemption."""
    assert unnamed(policies.links) == {
        "LinkPolicy.max_at_once": 2,
        "LinkPolicy.rule": "plain",
        "Message.weight": 1.0,
    }
    assert hidden(policies.links) == {}
    assert by_place(policies.links) == []


@pytest.mark.parametrize(
    ("field", "least", "is_allowed"),
    [("threshold", 0.0, True), ("bucket_bytes", 0.0, False), ("max_wait_seconds", 0.0, True)],
)
def test_the_limits_of_a_link_policy_are_not_negative(field: str, least: float, is_allowed: bool) -> None:
    """Fractions are allowed; NaN is not, and a bucket of 0 bytes is not."""
    assert getattr(LinkPolicy(link=LINK, **{field: 0.5}), field) == 0.5  # type: ignore[arg-type]
    for value in (-0.5, math.nan, *([] if is_allowed else [least])):
        with pytest.raises(InvalidProblem, match=f"must be .*zero.*; got {value}"):
            LinkPolicy(link=LINK, **{field: value})  # type: ignore[arg-type]
    if is_allowed:
        LinkPolicy(link=LINK, **{field: least})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("service", "size", "starts"),
    [(99.0, 2.6, True), (99.0, 2.7, False), (1.0, 1.3, True), (1.0, 1.4, False)],
)
def test_the_weighted_threshold_follows_the_service_left(service: float, size: float, starts: bool) -> None:
    """Beside 4 bytes it is 0.99 / 1.5 where the old job has 99 seconds left, and 1/3 where it has one."""
    flying = [a_message("old", "xy", size=4.0, service=service)]
    waiting = [a_message("new", "xy", size=size, service=1.0)]
    assert bool(link_policy("ada-srsf-weighted", LINK).admit(waiting, flying).start) is starts


def test_caches_are_bounded() -> None:
    """`policies.links` has one cache."""
    assert hurried(policies.links) == {"shared_iteration_seconds": 4096}
