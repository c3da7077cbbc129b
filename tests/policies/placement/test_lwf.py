import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unnamed import by_place, hurried, unnamed

import policies.placement
from policies.answer import Placement
from policies.model import GpuSlot, InstanceType, Node, Width
from policies.placement import lwf
from policies.placement.few_jobs import MOST_LOOKS
from policies.placement.lwf import (
    AnyFree,
    FirstGpus,
    LeastWorkload,
    LeastWorkloadFirst,
    RandomChoice,
    senders,
)
from policies.placement.packing import ClusterPacking

SERVER_OF = np.array([0, 0, 1, 1, 2, 2])
ALL_FIT = np.ones(6, dtype=bool)
LOADS = np.array([5.0, 0.0, 1.0, 2.0, 4.0, 3.0])
"""Sums by server: 5, 3, 7."""


def node(name: str, gpus: int = 4, *, gpu_type: str = "a100", is_ready: bool = True) -> Node:
    kind = InstanceType(name=f"{gpu_type}-{gpus}", gpu_type=gpu_type, gpus=gpus, usd_per_hour=1.0)
    return Node(id=name, instance_type=kind, is_ready=is_ready)


def slots(text: str) -> tuple[GpuSlot, ...]:
    """``"a0 a1 b3"`` is GPUs 0 and 1 of node a and GPU 3 of node b."""
    return tuple(GpuSlot(word[0], int(word[1:])) for word in text.split())


def width(gpus: int, gpu_type: str = "a100") -> Width:
    return Width(gpu_type, gpus)


def nodes_of(placement: Placement, job: str) -> list[str]:
    return sorted({slot.node for slot in placement.slots[job]})


def test_a_narrow_job_takes_the_least_loaded_gpus_wherever_they_are() -> None:
    """n = 2 <= kappa = 2: the GPUs with loads 0 and 1 are on two servers."""
    chosen = LeastWorkload(kappa=2).choose(2, fits=ALL_FIT, workload=LOADS, server_of=SERVER_OF)
    assert chosen.tolist() == [1, 2]


def test_a_wide_job_fills_the_least_loaded_server_first() -> None:
    """Sums 3 < 5 < 7: both GPUs of server 1, then the less loaded one of server 0."""
    chosen = LeastWorkload(kappa=1).choose(3, fits=ALL_FIT, workload=LOADS, server_of=SERVER_OF)
    assert chosen.tolist() == [2, 3, 1]


def test_a_server_sums_all_its_gpus_but_gives_only_those_that_fit() -> None:
    """GPU 2 has no room; server 1 still sums to 3 and still goes first."""
    fits = np.array([True, True, False, True, True, True])
    chosen = LeastWorkload(kappa=1).choose(2, fits=fits, workload=LOADS, server_of=SERVER_OF)
    assert chosen.tolist() == [3, 1]


def test_an_infinite_kappa_is_list_scheduling() -> None:
    """The job takes the n least loaded GPUs, with ties by index."""
    loads = np.array([1.0, 1.0, 0.0, 1.0, 0.0, 9.0])
    chosen = LeastWorkload(kappa=float("inf")).choose(4, fits=ALL_FIT, workload=loads, server_of=SERVER_OF)
    assert chosen.tolist() == [2, 4, 0, 1]


def test_first_fit_chooses_by_index_and_random_by_its_generator() -> None:
    fits = np.array([False, True, True, False, True, True])
    settings = {"fits": fits, "workload": LOADS, "server_of": SERVER_OF}
    assert FirstGpus().choose(3, **settings).tolist() == [1, 2, 4]
    draws = [RandomChoice(rng=np.random.default_rng(5)).choose(3, **settings).tolist() for _ in range(2)]
    assert draws[0] == draws[1]
    assert set(draws[0]) <= {1, 2, 4, 5}


@pytest.mark.parametrize(
    "chooser",
    [FirstGpus(), LeastWorkload(kappa=1), LeastWorkload(kappa=9), RandomChoice(rng=np.random.default_rng(1))],
)
def test_a_job_with_too_few_gpus_that_fit_is_left_queued(chooser: FirstGpus) -> None:
    fits = np.array([True, False, False, True, False, False])
    assert chooser.choose(3, fits=fits, workload=LOADS, server_of=SERVER_OF) is None


def test_a_job_on_one_node_goes_where_it_fits_best() -> None:
    """Node b has exactly the two GPUs free; c is empty and can be released."""
    held = {"x": slots("a0"), "y": slots("b0 b1")}
    widths = {"x": width(1), "y": width(2), "new": width(2)}
    placement = LeastWorkloadFirst().place(widths, nodes=[node("a"), node("b"), node("c")], held=held)
    assert placement.slots["new"] == slots("b2 b3")
    assert placement.slots["x"] == held["x"]


def test_a_wide_job_takes_the_fewest_nodes() -> None:
    """Six GPUs: the empty c and two of a, rather than free GPUs of three nodes."""
    held = {"x": slots("a0"), "y": slots("b0 b1 b2")}
    widths = {"x": width(1), "y": width(3), "new": width(6)}
    placement = LeastWorkloadFirst().place(widths, nodes=[node("a"), node("b"), node("c")], held=held)
    assert nodes_of(placement, "new") == ["a", "c"]


def test_a_job_on_several_nodes_avoids_links_in_use() -> None:
    """Nodes a and b carry a job that sends; c and d have as many free GPUs and quiet links."""
    held = {"sender": slots("a0 b0"), "p": slots("c0"), "q": slots("d0")}
    widths = {"sender": width(2), "p": width(1), "q": width(1), "new": width(6)}
    placement = LeastWorkloadFirst().place(widths, nodes=[node(name) for name in "abcd"], held=held)
    assert nodes_of(placement, "new") == ["c", "d"]


def test_fewer_nodes_come_before_quiet_links() -> None:
    """Two nodes with a sender beat three nodes without one."""
    held = {"sender": slots("a0 b0"), "p": slots("c0 c1"), "q": slots("d0 d1"), "r": slots("e0 e1")}
    widths = {name: width(len(gpus)) for name, gpus in held.items()} | {"new": width(6)}
    placement = LeastWorkloadFirst().place(widths, nodes=[node(name) for name in "abcde"], held=held)
    assert nodes_of(placement, "new") == ["a", "b"]


def test_a_job_on_one_node_leaves_quiet_links_to_jobs_that_send() -> None:
    """Among equally full nodes the job joins the one whose link is busy anyway."""
    held = {"sender": slots("b0 c0"), "p": slots("a0")}
    widths = {"sender": width(2), "p": width(1), "new": width(2)}
    placement = LeastWorkloadFirst().place(widths, nodes=[node(name) for name in "abc"], held=held)
    assert nodes_of(placement, "new") == ["b"]


def test_within_kappa_a_job_takes_leftovers_so_that_a_node_stays_empty() -> None:
    """Two GPUs are in pieces on a and b, or together on the empty c: kappa decides."""
    held = {"x": slots("a0 a1 a2"), "y": slots("b0 b1 b2")}
    widths = {"x": width(3), "y": width(3), "new": width(2)}
    three = [node("a"), node("b"), node("c")]
    together = LeastWorkloadFirst(kappa=1).place(widths, nodes=three, held=held)
    spread = LeastWorkloadFirst(kappa=2).place(widths, nodes=three, held=held)
    assert nodes_of(together, "new") == ["c"]
    assert nodes_of(spread, "new") == ["a", "b"]


def test_a_job_only_goes_to_ready_nodes_of_its_type() -> None:
    nodes = [node("a", gpu_type="v100"), node("b", is_ready=False), node("c")]
    placement = LeastWorkloadFirst().place({"new": width(4)}, nodes=nodes, held={})
    assert nodes_of(placement, "new") == ["c"]


def test_a_job_is_placed_anew_if_its_node_is_gone_or_its_width_changed() -> None:
    held = {"lost": slots("z0"), "wider": slots("a0")}
    placement = LeastWorkloadFirst().place(
        {"lost": width(1), "wider": width(3)}, nodes=[node("a")], held=held
    )
    assert len(placement.slots["wider"]) == 3
    assert nodes_of(placement, "lost") == ["a"]


def test_earlier_jobs_are_served_first_and_smaller_ones_fill_the_rest() -> None:
    """Of eight GPUs six go to the first job; four do not fit, and two do."""
    widths = {"first": width(6), "second": width(4), "third": width(2)}
    placement = LeastWorkloadFirst().place(widths, nodes=[node("a"), node("b")], held={})
    assert list(placement.slots) == ["first", "third"]


def test_senders_are_the_jobs_that_span_nodes() -> None:
    held = {"x": slots("a0 b0"), "y": slots("a1 a2"), "z": slots("b1 c0")}
    assert senders(held) == {"a": ("x",), "b": ("x", "z"), "c": ("z",)}


sizes = st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=6)
wanted = st.lists(st.integers(1, 12), min_size=1, max_size=10)


@given(sizes, wanted, st.integers(1, 4))
def test_slots_exist_are_used_once_and_make_up_the_width(
    gpus: list[int], asked: list[int], kappa: int
) -> None:
    """A job is left out only if too few GPUs are left at its turn; placing again changes nothing."""
    nodes = [node(str(number), count) for number, count in enumerate(gpus)]
    widths = {f"j{number}": width(count) for number, count in enumerate(asked)}
    policy = LeastWorkloadFirst(kappa=kappa)
    placed = policy.place(widths, nodes=nodes, held={}).slots
    used = [slot for held in placed.values() for slot in held]
    assert len(used) == len(set(used))
    assert all(slot.index < gpus[int(slot.node)] for slot in used)
    left = sum(gpus)
    for job, size in widths.items():
        assert (job in placed) == (size.gpus <= left)
        if job in placed:
            assert len(placed[job]) == size.gpus
            left -= size.gpus
    assert policy.place(widths, nodes=nodes, held=placed).slots == placed


@given(sizes, wanted, st.integers(1, 16))
def test_one_more_job_takes_the_fewest_possible_nodes(gpus: list[int], asked: list[int], new: int) -> None:
    """Every smaller set of nodes has too few free GPUs."""
    packing = ClusterPacking([node(str(number), count) for number, count in enumerate(gpus)])
    for number, count in enumerate(asked):
        packing.add(f"j{number}", width(count))
    free = [
        count - sum(slot.node == str(number) for held in packing.slots.values() for slot in held)
        for number, count in enumerate(gpus)
    ]
    if not packing.add("new", width(new)):
        assert sum(free) < new
        return
    used = len({slot.node for slot in packing.slots["new"]})
    assert not any(sum(chosen) >= new for size in range(1, used) for chosen in combinations(free, size))


@given(sizes, wanted, st.randoms())
def test_removing_all_jobs_frees_all_gpus(gpus: list[int], asked: list[int], random: object) -> None:
    """After all jobs are removed, all GPUs are free and no job sends."""
    packing = ClusterPacking([node(str(number), count) for number, count in enumerate(gpus)])
    placed = [name for number, count in enumerate(asked) if packing.add(name := f"j{number}", width(count))]
    random.shuffle(placed)
    for name in placed:
        packing.remove(name)
    assert packing.free_gpus("a100") == sum(gpus)
    assert packing.slots == {}
    assert packing.add("all", width(sum(gpus)))


@given(sizes, wanted)
def test_placing_at_random_fits_and_repeats(gpus: list[int], asked: list[int]) -> None:
    """GPUs are free and used once, each call gives the same slots, and jobs with slots keep them."""
    nodes = [node(str(number), count) for number, count in enumerate(gpus)]
    widths = {f"j{number}": width(count) for number, count in enumerate(asked)}
    placed = AnyFree().place(widths, nodes=nodes, held={}).slots
    used = [slot for held in placed.values() for slot in held]
    assert len(used) == len(set(used))
    left = sum(gpus)
    for job, size in widths.items():
        assert (job in placed) == (size.gpus <= left)
        left -= len(placed.get(job, ()))
    assert AnyFree().place(widths, nodes=nodes, held={}).slots == placed
    assert AnyFree().place(widths, nodes=nodes, held=placed).slots == placed


def test_only_these_defaults_are_not_empty() -> None:
    """In all of `policies.placement`: only jobs of one GPU go to the least loaded GPUs."""
    assert unnamed(policies.placement) == {"LeastWorkload.kappa": 1, "LeastWorkloadFirst.kappa": 1}
    assert by_place(policies.placement) == []


def test_caches_are_bounded() -> None:
    """`policies.placement` has one cache."""
    assert hurried(policies.placement) == {"slots_of_node": 65536}


ASKED = st.tuples(st.integers(0, 10), st.integers(1, 9), st.sampled_from(["a100", "a100", "v100"]))


@given(
    jobs=st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["a100", "a100", "v100"])), max_size=8),
    wishes=st.lists(ASKED, min_size=1, max_size=5),
    site=st.tuples(st.sampled_from([1, 1, 2]), st.booleans()),
    kappa=st.sampled_from([1.0, 3.0, math.inf]),
    more=st.integers(0, 3),
)
def test_wishes_placed_beside_others_get_what_they_get_among_all_jobs(
    jobs: list[tuple[int, str]],
    wishes: list[tuple[int, int, str]],
    site: tuple[int, bool],
    kappa: float,
    more: int,
) -> None:
    """Some wishing jobs hold GPUs, some of them their width already; the last nodes are new.

    GPUs may be shared, and nodes may be in racks. With and without the index the answer is the same.
    """
    places, racks = site
    nodes = [
        Node(
            id=f"n{number}",
            instance_type=InstanceType(
                name="m",
                gpu_type="v100" if number % 3 == 2 else "a100",
                gpus=4,
                usd_per_hour=1.0,
                places_per_gpu=places,
            ),
            is_ready=True,
            tiers=(f"rack{number % 2}",) if racks else (),
        )
        for number in range(5 + more)
    ]
    packing = ClusterPacking(nodes[:5])
    for number, (gpus, kind) in enumerate(jobs):
        packing.add(f"j{number}", width(gpus, kind))
    held = {job: tuple(sorted(taken)) for job, taken in packing.slots.items()}
    holders: list[list[str | None]] = [[None] * 4 for _ in range(5)]
    for job, taken in held.items():
        for slot in taken:
            holders[int(slot.node[1:])][slot.index] = job
    wanted = {f"j{number}": width(gpus, kind) for number, gpus, kind in wishes}
    staying = {
        f"j{n}": width(*job) for n, job in enumerate(jobs) if f"j{n}" in held and f"j{n}" not in wanted
    }
    placer = LeastWorkloadFirst(kappa=kappa)

    among_all = placer.place({**staying, **wanted}, nodes=nodes, held=held).slots
    for most_looks in (0, MOST_LOOKS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lwf, "MOST_LOOKS", most_looks)
            beside = placer.place_beside(wanted, nodes=nodes, holders=holders)
        assert beside == {job: among_all[job] for job in wanted if job in among_all}
        assert list(beside) == [job for job in wanted if job in beside]
