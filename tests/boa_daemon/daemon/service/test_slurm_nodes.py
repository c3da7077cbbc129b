"""`daemon/slurm_nodes.py`: each node of Slurm has one job, both lists agree, and refusals go back."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_site import World

from boa_daemon.daemon.service.slurm_comments import MOST_COMMENTS
from boa_daemon.errors import InputError
from boa_daemon.slurm.commands import SlurmJob, SlurmNode, SlurmRefused
from boa_daemon.testing.daemon_in_a_folder import job_content


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A new world."""
    return World(tmp_path)


def test_a_node_is_asked_for_once_however_often_slurm_asks(world: World) -> None:
    """The program is called twice, and the comparison finds nothing that is missing."""
    world.wants("c1", "c2")
    assert len(world.nodes.resume("c[1-2]")["jobs"]) == 2
    assert world.nodes.resume("c[1-2]") | {"as_of": 0} == {"as_of": 0, "jobs": [], "known": 2, "refused": {}}
    world.passes()
    assert len(world.site.daemon.storage.queue.active) == 2  # type: ignore[union-attr]


def test_a_request_that_nobody_heard_is_served_by_the_comparison(world: World) -> None:
    """The daemon was dead when Slurm called."""
    world.wants("c3")
    world.passes()
    assert world.live() == {"c3"}


def test_a_job_is_of_the_user_and_team_of_slurms_job_and_runs_as_root(world: World) -> None:
    """Its command is told which node it is."""
    world.wants("c1")
    world.slurm.queue = [SlurmJob(id="7", state="CONFIGURING", user="ann", account="ml", nodes="c1")]
    world.nodes.resume("c1")
    job = world.nodes.live()["c1"]
    assert (job.user, job.team, job.spec.user) == ("ann", "vision", "root")
    assert job.spec.environment["BOA_SLURM_NODE"] == "c1"
    assert (job.content["min_gpus"], job.content["max_gpus"]) == (4, 4)


def test_what_slurm_gives_back_ends_and_an_unknown_node_is_no_error(world: World) -> None:
    """By its program, and by the comparison where the program was not heard."""
    world.wants("c1", "c2")
    world.nodes.resume("c[1-2]")
    assert world.nodes.suspend("c1,c9")["unknown"] == 1
    assert world.live() == {"c2"}
    world.slurm.set("c1", state="idle", marks="%")
    world.slurm.set("c2", state="idle", marks="~")
    world.nodes.reconcile()
    assert world.live() == {"c2"}  # Slurm may not show yet what it has just asked for.
    world.passes()
    assert world.live() == set()


def test_a_node_that_is_wanted_again_waits_for_its_last_slurmd(world: World) -> None:
    """Two slurmd of one name would fight for it."""
    world.wants("c1")
    (first,) = world.nodes.resume("c1")["jobs"]
    for _ in range(4):
        world.passes(20.0)
    assert world.site.daemon.storage.queue.active[first].slots  # type: ignore[union-attr]
    world.nodes.suspend("c1")
    world.nodes.resume("c1")
    assert world.nodes.live()["c1"].content["after"] == [f"{first}:end"]


def test_a_cap_sends_the_node_back_with_its_sentence(tmp_path: Path) -> None:
    """Slurm requeues its job; the job here is over."""
    world = World(tmp_path, budget={"usd_per_hour": 100.0, "usd_per_day_cap": 0.5})
    world.wants("c1")
    world.nodes.resume("c1")
    for _ in range(4):
        world.passes(20.0)
    told = [values for names, values in world.slurm.told if names == ("c1",)]
    assert told[0]["state"] == "power_down_force"
    assert "cap" in told[0]["reason"]
    assert told[0]["reason"].startswith("boa: ")
    assert world.live() == set()


def test_a_node_without_a_partition_here_is_refused(tmp_path: Path) -> None:
    """With two partitions the node's own is asked for."""
    partitions = {name: {"instance_type": "g5.12xlarge"} for name in ("rented", "other")}
    world = World(tmp_path, slurm={"partitions": partitions})
    world.slurm.by_name["x1"] = SlurmNode(name="x1", partition="third", state="idle")
    assert list(world.nodes.resume("x1")["refused"]) == ["x1"]


def test_a_refusal_that_slurm_does_not_hear_is_said_again(world: World) -> None:
    """Its controller is silent for a while; nothing is ended meanwhile."""
    world.wants("c1")
    world.nodes.resume("c1")
    world.slurm.is_silent = True
    world.nodes._refuse({"c1": "the cap"})
    assert world.slurm.told == []
    world.nodes.after_tick()
    assert world.live() == {"c1"}
    world.slurm.is_silent = False
    world.passes()
    assert world.slurm.told[0] == (("c1",), {"state": "power_down_force", "reason": "boa: the cap"})


def test_a_joined_node_whose_job_has_ended_is_powered_down_with_the_reason(world: World) -> None:
    """So Slurm requeues what ran there at once, and not after its timeout."""
    world.slurm.set("c2", state="allocated", marks="")
    world.passes()
    assert world.slurm.told == [(("c2",), {"state": "power_down_force", "reason": "boa: the node has ended"})]


@pytest.mark.parametrize("hostlist", ["", "c[1-", "c[a]"])
def test_a_broken_host_list_is_refused(world: World, hostlist: str) -> None:
    """Nothing is asked for."""
    with pytest.raises(InputError):
        world.nodes.resume(hostlist)


def test_node_classes_are_left_out_of_what_is_learnt(world: World) -> None:
    """Their arrivals say nothing about training."""
    world.wants("c1", "c2")
    world.nodes.resume("c[1-2]")
    world.passes()
    learner = world.site.daemon.learning.learner
    assert learner.arrived_through == 2
    assert not any(name.startswith("slurm-") for name in learner.events)


def test_a_job_of_slurm_says_why_it_waits_until_it_has_its_nodes(tmp_path: Path) -> None:
    """A refusal stays with the requeued job; the comment goes once all of its nodes have joined."""
    world = World(tmp_path, budget={"usd_per_hour": 100.0, "usd_per_day_cap": 0.5})
    world.wants("c1")
    world.slurm.queue = [
        SlurmJob(id="7", state="CONFIGURING", user="ann", nodes="c1"),
        SlurmJob(id="8", state="RUNNING", user="ann", nodes="n1"),
        SlurmJob(id="9", state="PENDING", user="ann"),
    ]
    world.nodes.resume("c1")
    for _ in range(4):
        world.passes(20.0)
    assert list(world.slurm.comments) == ["7"]
    assert world.slurm.comments["7"].startswith("boa: ")
    assert "cap" in world.slurm.comments["7"]
    world.slurm.queue = [SlurmJob(id="7", state="PENDING", user="ann")]
    world.passes()
    assert world.slurm.comments["7"].startswith("boa: ")
    world.slurm.set("c1", state="allocated", marks="")
    world.slurm.queue = [SlurmJob(id="7", state="RUNNING", user="ann", nodes="c1")]
    world.nodes._comments.show({}, joined={"c1"})
    assert world.slurm.comments == {"7": ""}


def test_a_large_array_is_told_why_it_waits_however_many_there_are(world: World) -> None:
    """All lose their nodes at once and are requeued; each comparison tells as many as it may."""
    count = 2 * MOST_COMMENTS + 7
    world.slurm.queue = [
        SlurmJob(id=str(n), state="CONFIGURING", user="ann", nodes="c1") for n in range(count)
    ]
    world.wants("c1")
    world.nodes._refuse({"c1": "the cap"})
    assert len(world.slurm.comments) == MOST_COMMENTS
    world.slurm.comments.clear()
    world.slurm.queue = [SlurmJob(id=str(n), state="PENDING", user="ann") for n in range(count)]
    for _ in range(3):
        world.nodes._comments.show({})
    assert world.slurm.comments == dict.fromkeys(map(str, range(count)), "boa: the cap")


def test_a_controller_that_refuses_or_is_silent_about_comments_stops_nothing(world: World) -> None:
    """The node is sent back all the same, or later."""

    def refuses(_job: str, _text: str) -> None:
        raise SlurmRefused("Access/permission denied")

    world.slurm.comment = refuses  # type: ignore[method-assign]
    world.slurm.queue = [SlurmJob(id="7", state="CONFIGURING", user="ann", nodes="c1")]
    world.wants("c1")
    world.nodes._refuse({"c1": "the cap"})
    assert world.slurm.told == [(("c1",), {"state": "power_down_force", "reason": "boa: the cap"})]


def test_nodes_for_slurm_and_own_jobs_share_the_caps(tmp_path: Path) -> None:
    """Three instances at the most for both together, and one bill."""
    budget = {"usd_per_hour": 100.0, "usd_per_day_cap": 5000.0, "max_instances": 3}
    world = World(tmp_path, budget=budget)
    own = [job_content(f"own-{number}", hours=50.0, min_gpus=4, max_gpus=4) for number in range(2)]
    world.site.service.submit(own, user="ann")
    for _ in range(4):
        world.passes(20.0)
    world.wants("c1", "c2", "c3")
    world.nodes.resume("c[1-3]")
    for _ in range(6):
        world.passes(60.0)
        decision = world.site.daemon.standing.decision
        assert decision is not None
        assert len(decision.state.nodes) <= 3
    held = [job for job in world.site.storage.queue.active.values() if job.slots]
    assert sorted("slurm_node" in job.content for job in held) == [False, False, True]
    reasons = [values["reason"] for _, values in world.slurm.told]
    assert reasons
    assert all(reason.startswith("boa: ") for reason in reasons)


@pytest.mark.parametrize("what", ["jobs", "admin_comments"])
def test_a_slurm_that_refuses_what_is_beside_its_nodes_gets_them_and_gives_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Widths and comments wait for an administrator; nodes that are paid for do not."""
    world = World(tmp_path)

    def refuses(*_: object) -> None:
        raise SlurmRefused("Access/permission denied")

    monkeypatch.setattr(world.slurm, what, refuses)
    world.wants("c1", "c2")
    with pytest.raises(SlurmRefused, match="denied"):
        world.passes()
    assert world.live() == {"c1", "c2"}
    world.slurm.set("c1", state="idle", marks="~")
    with pytest.raises(SlurmRefused, match="denied"):
        world.passes()
    assert world.live() == {"c2"}


def test_a_refusal_is_told_to_the_node_where_its_job_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose request is refused would stay in powering up otherwise, and its job with it."""
    world = World(tmp_path)
    world.slurm.queue = [SlurmJob(id="7", state="CONFIGURING", nodes="c1", user="ann", account="none")]

    def refuses(*_: object) -> None:
        raise SlurmRefused("Access/permission denied")

    monkeypatch.setattr(world.slurm, "admin_comments", refuses)
    world.nodes._refuse({"c1": "the cap"})
    assert world.slurm.told == [(("c1",), {"state": "power_down_force", "reason": "boa: the cap"})]
