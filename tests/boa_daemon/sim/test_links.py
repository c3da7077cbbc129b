"""Links in the simulated world: spanning nodes costs, sharing costs more, order decides who pays."""

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
    """Nothing changes for anybody."""
    links = SharedLinks()

    assert not sender(links, "a", "n1")
    assert links.paces() == {}


def test_a_class_that_does_not_say_what_it_sends_neither_pays_nor_disturbs() -> None:
    """Without `network` a job that spans nodes keeps its measured speed."""
    links = SharedLinks()

    assert not links.join("a", None, some_slots("n1", 0) + some_slots("n2", 0), KINDS)


def test_alone_on_its_links_a_wide_job_keeps_its_pace() -> None:
    """Its curve pays for its own sending already."""
    links = SharedLinks()
    sender(links, "a", "n1", "n2")

    assert links.paces() == {"a": 1.0}


def test_a_scattered_job_pays_for_sending_that_one_node_would_have_spared() -> None:
    """Two GPUs on two nodes: 1 / (1 + c / t)."""
    links = SharedLinks()
    links.join("a", NEED, some_slots("n1", 0) + some_slots("n2", 0), KINDS)

    assert links.paces()["a"] == pytest.approx(1.0 / (1.0 + SHARE))


def test_in_order_the_first_keeps_its_pace_and_the_second_pays() -> None:
    """The plan's order decides; turning it round turns the paces round."""
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


def test_unordered_both_pay_alike() -> None:
    """Fair sharing: equal jobs, equal paces below one."""
    links = SharedLinks(in_order=False)
    sender(links, "a", "n1", "n2")
    sender(links, "b", "n2", "n3")
    paces = links.paces()

    assert paces["a"] == pytest.approx(paces["b"])
    assert paces["a"] < 1.0


def test_when_a_neighbour_leaves_the_pace_is_back() -> None:
    """Contention lasts as long as the neighbour does."""
    links = SharedLinks()
    sender(links, "a", "n1", "n2")
    sender(links, "b", "n2", "n3")
    links.follow({"n2": ("b", "a")})

    assert links.leave("b")
    assert links.paces() == {"a": 1.0}


def _run(placer: str) -> float:
    """Mean JCT in hours of three-GPU jobs that arrive together on nodes of two GPUs."""
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


def test_a_shared_link_costs_completion_time_in_a_whole_run() -> None:
    """Two jobs on three nodes meet on one link: their mean JCT is above that of a job alone."""
    alone = 1.0 / 2.8

    assert _run("first-fit") > alone * 1.05


RACKS = SimulatedTopology((Tier(name="rack", groups=9, gigabits_per_second=5.0),))
ABOVE = {"n1": ("r1",), "n2": ("r1",), "n3": ("r2",)}
UPLINK = network_share(Link.of_gigabits(5.0), NEED)


@pytest.mark.parametrize(
    ("nodes", "pace"), [(("n1", "n2"), 1.0), (("n1", "n3"), (1.0 + SHARE) / (1.0 + UPLINK))]
)
def test_a_job_over_two_racks_goes_as_fast_as_their_uplinks(nodes: tuple[str, str], pace: float) -> None:
    """Its curve pays for a card of 10 Gbit/s; the uplink carries 5."""
    links = SharedLinks(topology=RACKS)
    links.join("a", NEED, sum((some_slots(node, 0, 1) for node in nodes), ()), KINDS, ABOVE)

    assert links.paces()["a"] == pytest.approx(pace)


def test_nodes_land_somewhere_and_stay_there() -> None:
    """Names nest, the same node has the same place, and all parts are used."""
    spines = SimulatedTopology(
        (Tier(name="spine", groups=2, gigabits_per_second=100.0), *RACKS._tiers), seed=3
    )
    above = [spines.above(f"n{n}", "a") for n in range(200)]

    assert above == [spines.above(f"n{n}", "a") for n in range(200)]
    assert all(rack.startswith(f"{spine}/rack-") and spine.startswith("a/spine-") for spine, rack in above)
    assert len(set(above)) == 18
    assert SimulatedTopology().above("n1") == ()


def _wide_run(placer: str) -> float:
    """Mean JCT in hours of jobs on two nodes each, of eight that stand in two racks with slow uplinks."""
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


def test_whoever_knows_the_racks_places_better() -> None:
    """LWF keeps jobs in a rack where it can; first fit knows nothing of racks."""
    assert _wide_run("lwf") < 0.9 * _wide_run("first-fit")


TWO_PLACES = replace(KIND, gpus=4, places_per_gpu=2)


def test_who_has_a_shared_gpu_alone_works_as_on_a_whole_one() -> None:
    """Its speed-up counts a neighbour, so its pace is T_2 / T_1; with one like it beside it, that is gone.

    In order the second sends when the first does not, so their mean is within a tenth of the plan's.
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


def test_two_that_never_send_halve_each_other_on_the_gpus_that_they_share() -> None:
    """Beside each other on GPU 0 they work as planned, m times slower; alone on theirs twice that."""
    links, kinds = SharedLinks(), {"n1": TWO_PLACES}
    for job, place in (("a", 0), ("b", 2), ("c", 1)):
        assert links.join(job, None, some_slots("n1", place), kinds)
    assert links.paces() == {"a": 1.0, "b": 1.0, "c": 2.0}
