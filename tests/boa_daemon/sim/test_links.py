"""Shared links in the simulator: the cost of spanning nodes, of sharing a link, and of its order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boa_daemon.inputs.problem_file import ProblemFile
from boa_daemon.sim.links import SharedLinks
from boa_daemon.sim.topology import SimulatedTopology
from boa_daemon.sim.wiring import SimulationSettings, settings_for, simulate
from boa_daemon.sim.world_settings import Tier, WorldSettings
from boa_daemon.testing import a_class, a_problem, a_trace, an_instance_type, some_slots
from policies.links.contention import Link
from policies.links.gpu_share import shared_iteration_seconds
from policies.links.link_share import network_share
from policies.model import AllReduce, Budget
from policies.registry import PolicyOptions
from policies.speedup import Table

NEED = AllReduce(message_bytes=100e6, compute_seconds=0.1)
KIND = an_instance_type(gpus=2)
KINDS = {"n1": KIND, "n2": KIND, "n3": KIND}
SHARE = network_share(Link.of_gigabits(KIND.link_gigabits_per_second), NEED)


def sender(links: SharedLinks, job: str, *nodes: str) -> bool:
    """Let a job start with two GPUs on each of the nodes."""
    return links.join(job, NEED, sum((some_slots(node, 0, 1) for node in nodes), ()), KINDS)


def test_a_job_on_one_node_does_not_use_its_link() -> None:
    """The job has no pace, and no other job changes."""
    links = SharedLinks()

    assert not sender(links, "a", "n1")
    assert links.paces() == {}


def test_a_job_without_network_needs_uses_no_links() -> None:
    """A class without `network` keeps its measured speed on several nodes."""
    links = SharedLinks()

    assert not links.join("a", None, some_slots("n1", 0) + some_slots("n2", 0), KINDS)


def test_a_job_alone_on_its_links_keeps_its_pace() -> None:
    """Its speed-up curve includes its own sending."""
    links = SharedLinks()
    sender(links, "a", "n1", "n2")

    assert links.paces() == {"a": 1.0}


def test_a_job_that_fits_one_node_is_slower_when_scattered() -> None:
    """Two GPUs on two nodes run at a pace of 1 / (1 + c / t)."""
    links = SharedLinks()
    links.join("a", NEED, some_slots("n1", 0) + some_slots("n2", 0), KINDS)

    assert links.paces()["a"] == pytest.approx(1.0 / (1.0 + SHARE))


def test_on_an_ordered_link_only_the_second_job_is_slower() -> None:
    """Reversing the order exchanges the paces."""
    links = SharedLinks()
    sender(links, "a", "n1", "n2")
    sender(links, "b", "n2", "n3")

    assert links.follow({"n2": ("b", "a")})
    b_first = links.paces()
    assert links.follow({"n2": ("a", "b")})
    a_first = links.paces()

    assert b_first["b"] == a_first["a"] == 1.0
    assert b_first["a"] == pytest.approx(a_first["b"])
    assert b_first["a"] < 1.0


def test_on_an_unordered_link_equal_jobs_are_slowed_equally() -> None:
    """Fair sharing gives both the same pace, below one."""
    links = SharedLinks(in_order=False)
    sender(links, "a", "n1", "n2")
    sender(links, "b", "n2", "n3")
    paces = links.paces()

    assert paces["a"] == pytest.approx(paces["b"])
    assert paces["a"] < 1.0


def test_the_pace_recovers_when_the_other_job_leaves() -> None:
    """Contention lasts as long as both jobs send."""
    links = SharedLinks()
    sender(links, "a", "n1", "n2")
    sender(links, "b", "n2", "n3")
    links.follow({"n2": ("b", "a")})

    assert links.leave("b")
    assert links.paces() == {"a": 1.0}


def _run(placer: str) -> float:
    """Return the mean JCT in hours of three-GPU jobs that arrive together on nodes of two GPUs."""
    curve = Table(gpus=(3,), speeds=(2.8,))
    file = ProblemFile(
        path="test",
        problem=a_problem(a_class(curve=curve, network=NEED, arrivals_per_hour=1.0)),
        budget=None,
        instance_types={"gpu": replace(KIND, gpus=2, usd_per_hour=2.0)},
    )
    settings: SimulationSettings = settings_for(file, a_trace(0.0, 0.0), Budget(amount=50.0))
    settings = replace(
        settings, placer=placer, policy="equal-width", options=PolicyOptions(gpus_per_job=3), boot_seconds=0.0
    )
    return simulate(settings).mean_jct_hours


def test_a_shared_link_raises_the_mean_jct_of_a_run() -> None:
    """Two jobs on three nodes share one link."""
    alone = 1.0 / 2.8

    assert _run("first-fit") > alone * 1.05


RACKS = SimulatedTopology((Tier(name="rack", groups=9, gigabits_per_second=5.0),))
ABOVE = {"n1": ("r1",), "n2": ("r1",), "n3": ("r2",)}
UPLINK = network_share(Link.of_gigabits(5.0), NEED)


@pytest.mark.parametrize(
    ("nodes", "pace"), [(("n1", "n2"), 1.0), (("n1", "n3"), (1.0 + SHARE) / (1.0 + UPLINK))]
)
def test_a_job_across_two_racks_is_as_fast_as_the_uplink(nodes: tuple[str, str], pace: float) -> None:
    """Its curve includes a card of 10 Gbit/s, and the uplink carries 5."""
    links = SharedLinks(topology=RACKS)
    links.join("a", NEED, sum((some_slots(node, 0, 1) for node in nodes), ()), KINDS, ABOVE)

    assert links.paces()["a"] == pytest.approx(pace)


def test_every_node_has_a_fixed_place_in_the_topology() -> None:
    """The names of racks contain those of spines, and all places are used."""
    spines = SimulatedTopology(
        (Tier(name="spine", groups=2, gigabits_per_second=100.0), *RACKS._tiers), seed=3
    )
    above = [spines.above(f"n{n}", "a") for n in range(200)]

    assert above == [spines.above(f"n{n}", "a") for n in range(200)]
    assert all(rack.startswith(f"{spine}/rack-") and spine.startswith("a/spine-") for spine, rack in above)
    assert len(set(above)) == 18
    assert SimulatedTopology().above("n1") == ()


def _wide_run(placer: str) -> float:
    """Return the mean JCT in hours of two-node jobs on eight nodes in two racks with slow uplinks."""
    curve = Table(gpus=(4,), speeds=(3.5,))
    file = ProblemFile(
        path="test",
        problem=a_problem(a_class(curve=curve, network=NEED, arrivals_per_hour=3.0)),
        budget=None,
        instance_types={"gpu": replace(KIND, gpus=2, usd_per_hour=2.0)},
    )
    settings = settings_for(file, a_trace(*(400.0 * n for n in range(8))), Budget(amount=500.0))
    world = WorldSettings(topology=(Tier(name="rack", groups=2, gigabits_per_second=1.0),))
    options = PolicyOptions(nodes=8)
    return simulate(
        replace(
            settings, placer=placer, policy="tiresias", options=options, boot_seconds=0.0, world=world, seed=2
        )
    ).mean_jct_hours


def test_lwf_uses_racks_and_beats_first_fit() -> None:
    """LWF keeps a job in one rack where it can."""
    assert _wide_run("lwf") < 0.9 * _wide_run("first-fit")


TWO_PLACES = replace(KIND, gpus=4, places_per_gpu=2)


def test_a_job_alone_on_shared_gpus_is_faster_than_planned() -> None:
    """Its speed-up assumes a neighbour, so its pace alone is T_2 / T_1, and falls with an equal neighbour.

    On an ordered link the second job sends when the first does not, so their mean pace is about as planned.
    """
    kinds = dict.fromkeys(("n1", "n2"), TWO_PLACES)
    links, together = SharedLinks(), shared_iteration_seconds(2, (1.0, SHARE)) / (1.0 + SHARE)
    assert links.join("a", NEED, some_slots("n1", 0, 1) + some_slots("n2", 0, 1), kinds)
    assert links.paces()["a"] == pytest.approx(together, rel=1e-3)
    links.join("b", NEED, some_slots("n1", 2, 3) + some_slots("n2", 2, 3), kinds)
    paces = links.paces()
    assert paces["a"] > paces["b"]
    assert sum(paces.values()) / 2 == pytest.approx(1.0, rel=0.1)
    assert links.leave("b")
    assert links.paces()["a"] == pytest.approx(together, rel=1e-3)


def test_jobs_without_network_on_one_shared_gpu_run_at_half_speed() -> None:
    """Two jobs on GPU 0 work as planned; a job alone on GPU 1 is twice as fast."""
    links, kinds = SharedLinks(), {"n1": TWO_PLACES}
    for job, place in (("a", 0), ("b", 2), ("c", 1)):
        assert links.join(job, None, some_slots("n1", place), kinds)
    assert links.paces() == {"a": 1.0, "b": 1.0, "c": 2.0}
