"""`daemon/service/slurm_widths.py`: jobs of Slurm that name a class get the widths that the planner gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slurm_site import World

from boa_daemon.daemon.service.slurm_nodes import SlurmNodes
from boa_daemon.daemon.service.slurm_widths import MOST_REFUSALS
from boa_daemon.slurm.commands import SlurmJob, SlurmRefused
from boa_daemon.testing.daemon_in_a_folder import job_content


def a_job(number: str = "7", **changes: Any) -> SlurmJob:
    """Return a job of Slurm on four nodes that are being powered up."""
    values = {
        "state": "CONFIGURING", "user": "ann", "account": "ml", "partition": "rented", "node_count": 4,
        "nodes": "c[1-4]", "comment": "boa:class=default",
    }  # fmt: skip
    return SlurmJob(id=number, **{**values, **changes})  # type: ignore[arg-type]


def a_world(folder: Path, usd_per_hour: float = 3.0, **changes: dict[str, Any]) -> World:
    """Return a world whose budget pays for half a node."""
    budget = {"usd_per_hour": usd_per_hour, "usd_per_day_cap": 5000.0, "max_instances": 8}
    return World(folder, **{"budget": budget, **changes})


def wants(world: World, job: SlurmJob) -> None:
    """Let Slurm give a job nodes, and ask for them."""
    world.slurm.queue = [job]
    world.wants(*job.hosts)
    world.nodes.resume(job.nodes)


def passes(world: World, seconds: float = 1.0) -> None:
    """Tick, decide widths, and compare."""
    world.clock.instant += seconds
    decision = world.site.daemon.tick()
    assert decision is not None
    world.nodes._widths.plan(decision, world.nodes.live())
    world.nodes.reconcile()


def test_a_job_that_names_a_class_gets_a_width_before_its_nodes_are_asked_for(tmp_path: Path) -> None:
    """It asked for four nodes; what the budget does not pay for is never rented."""
    world = a_world(tmp_path)
    wants(world, a_job())
    assert world.live() == set()
    passes(world)
    (job,) = world.slurm.queue
    assert 1 <= job.node_count < 4
    passes(world)
    assert world.live() == set(job.hosts)
    given_back = {name for names, values in world.slurm.told for name in names if "fewer" in values["reason"]}
    assert given_back == {"c1", "c2", "c3", "c4"} - set(job.hosts)
    # Its ResumeProgram is called once more, or only now.
    assert world.nodes.resume("c[1-4]")["jobs"] == []
    assert world.live() == set(job.hosts)


def test_a_job_with_money_for_all_keeps_its_nodes(tmp_path: Path) -> None:
    """Nothing is changed, and the nodes are asked for after one tick."""
    world = a_world(tmp_path, usd_per_hour=1000.0)
    wants(world, a_job())
    passes(world)
    assert world.slurm.orders == []
    assert world.live() == {"c1", "c2", "c3", "c4"}


def test_a_job_that_names_none_is_rigid(tmp_path: Path) -> None:
    """Its nodes are asked for at once."""
    world = a_world(tmp_path)
    wants(world, a_job(comment="boa: is what we use"))
    assert world.live() == {"c1", "c2", "c3", "c4"}
    passes(world)
    assert world.slurm.orders == []


def test_a_job_that_may_be_wider_is_requeued_before_it_begins(tmp_path: Path) -> None:
    """It is held, changed and released; its nodes are asked for when it has them again."""
    world = a_world(tmp_path, usd_per_hour=1000.0)
    wants(world, a_job(node_count=1, nodes="c1", comment="boa:class=default,max_gpus=16"))
    passes(world)
    assert world.slurm.orders == [("7", {"requeue": "held"})]
    passes(world)
    sizes, at, release = world.slurm.orders[1:]
    assert sizes == ("7", {"NumNodes": "4-4"})
    assert (at, release) == (("7", {"StartTime": "now"}), ("7", {"release": ""}))


def test_a_job_that_slurm_holds_late_is_let_go_until_it_is_free(tmp_path: Path) -> None:
    """A hold counts only once the old processes have ended; meanwhile it is listed with its old nodes."""
    world = a_world(tmp_path, usd_per_hour=1000.0)
    late = world.slurm.requeue_held
    wants(world, a_job(node_count=1, nodes="c1", comment="boa:class=default,max_gpus=16"))
    passes(world)
    passes(world)
    late("7")
    world.slurm.queue = [replace(world.slurm.queue[0], node_count=1)]
    for _ in range(3):
        passes(world)
    orders = [next(iter(values)) for _, values in world.slurm.orders]
    assert orders == ["requeue", "NumNodes", "StartTime", "release", "requeue", "StartTime", "release"]


@pytest.mark.parametrize("listed", ["CONFIGURING", "RUNNING", "COMPLETING"])
@pytest.mark.parametrize("refuses", [True, False])
def test_a_requeued_job_that_is_still_listed_with_its_nodes_is_let_go(
    tmp_path: Path, listed: str, refuses: bool
) -> None:
    """A second order to requeue it is refused, since it waits already; the first one holds it."""
    world = a_world(tmp_path, usd_per_hour=1000.0)
    requeue = world.slurm.requeue_held
    comment = "boa:class=default,max_gpus=16,elastic"
    was_asked = []

    def requeue_once(number: str) -> None:
        if was_asked and refuses:
            raise SlurmRefused("scontrol: Job is pending execution for job 7")
        was_asked.append(number)
        if not refuses:
            requeue(number)
        world.slurm.queue = [a_job(node_count=1, nodes="c1", comment=comment, state=listed)]

    world.slurm.requeue_held = requeue_once  # type: ignore[method-assign]
    wants(world, a_job(node_count=1, nodes="c1", comment=comment))
    for _ in range(MOST_REFUSALS):
        passes(world)
    assert was_asked
    world.slurm.requeue_held = requeue  # type: ignore[method-assign]
    requeue("7")
    passes(world)
    assert ("7", {"NumNodes": "4-4"}) in world.slurm.orders
    assert ("7", {"release": ""}) in world.slurm.orders


def test_a_waiting_job_is_changed_where_it_waits(tmp_path: Path) -> None:
    """A job that its user holds is changed too, and stays held."""
    world = a_world(tmp_path)
    world.slurm.queue = [a_job(state="PENDING", nodes="", reason="JobHeldUser")]
    world.nodes.reconcile()
    passes(world)
    (order,) = world.slurm.orders
    count = int(order[1]["NumNodes"].partition("-")[0])
    assert 1 <= count < 4
    assert order == ("7", {"NumNodes": f"{count}-{count}"})
    assert world.slurm.queue[0].reason == "JobHeldUser"


@pytest.mark.parametrize(
    ("comment", "orders"),
    [
        ("boa:class=default", []),
        ("boa:class=default,shrink", ["NumNodes"]),
        ("boa:class=default,elastic", ["requeue"]),
        ("boa:class=default,elastic=false,shrink=false", []),
    ],
)
def test_a_running_job_is_changed_only_as_it_says(tmp_path: Path, comment: str, orders: list[str]) -> None:
    """The budget falls: a rigid job keeps its nodes, others give some back live, or through a checkpoint."""
    world = a_world(tmp_path, usd_per_hour=1000.0)
    wants(world, a_job(comment=comment))
    for _ in range(4):
        passes(world, 10.0)
    assert world.slurm.orders == []
    for name in ("c1", "c2", "c3", "c4"):
        world.slurm.set(name, state="allocated", marks="")
    world.slurm.queue = [a_job(comment=comment, state="RUNNING")]
    passes(world, 10.0)
    settings = world.site.daemon.settings
    budget = settings.budget.model_copy(update={"usd_per_hour": 3.0})
    world.site.daemon.use(settings.model_copy(update={"budget": budget}))
    for _ in range(30):
        passes(world, 600.0)
        if world.slurm.orders:
            break
    assert [next(iter(values)) for _, values in world.slurm.orders[:1]] == orders


def test_a_daemon_that_died_while_it_held_a_job_lets_it_go(tmp_path: Path) -> None:
    """The next one finds in its database that the job is held by us."""
    world = a_world(tmp_path, usd_per_hour=1000.0)
    wants(world, a_job(node_count=1, nodes="c1", comment="boa:class=default,max_gpus=16"))
    passes(world)
    assert world.slurm.orders == [("7", {"requeue": "held"})]
    world.nodes = SlurmNodes(world.site.service, world.slurm)
    world.nodes.reconcile()
    assert ("7", {"release": ""}) in world.slurm.orders


def test_a_job_that_may_not_be_requeued_gets_the_nodes_that_it_asked_for(tmp_path: Path) -> None:
    """Slurm refuses for --no-requeue."""
    world = a_world(tmp_path, usd_per_hour=1000.0)

    def refuses(_job: str) -> None:
        raise SlurmRefused("Requested operation is presently disabled for job 7")

    world.slurm.requeue_held = refuses  # type: ignore[method-assign]
    wants(world, a_job(node_count=1, nodes="c1", comment="boa:class=default,max_gpus=16"))
    for _ in range(MOST_REFUSALS + 1):
        passes(world)
    assert world.live() == {"c1"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"comment": "boa:class=visoin"}, "unknown class 'visoin'"),
        ({"comment": "boa:class=default,min_gpu=4"}, "boa:min_gpu is not known"),
        ({"comment": "boa:class=default,min_gpus=2.5"}, "must be a whole number"),
        ({"comment": "boa:class=default,max_gpus=3"}, "no width"),
        ({"comment": "boa:class=default,min_gpus=8,max_gpus=4"}, "no width"),
        ({"comment": "boa:class=default,weight=0"}, "must be more than zero"),
        ({"comment": "boa:class=default,scale=0.00"}, "must be more than zero"),
        ({"comment": "boa:class=default,elastic=no"}, "boa:elastic must be true or false; got 'no'"),
        ({"comment": "boa:class=default,max_usd=5"}, "boa:max_usd is kept for jobs of `boa submit` alone"),
        ({"comment": "boa:class=default,team=vision"}, "boa:team is kept for jobs of `boa submit` alone"),
        ({"is_task": True}, "tasks of arrays"),
        ({"comment": "boa:clas=default"}, "boa:clas is not known. Did you mean 'class'?"),
        ({"comment": "BOA:class=default,class=default"}, "boa:class is given twice"),
        ({"comment": "grant 17, boa:elastic"}, "boa:elastic has no class to go with"),
        ({"comment": "boa:class=default elastic"}, "has a space in its value"),
        ({"comment": "boa:"}, "names no key"),
        (
            {"comment": "boa:class=default", "partition": "rented,cpu"},
            "partition rented,cpu is none of BOA's",
        ),
    ],
)
def test_a_job_that_cannot_be_planned_runs_as_it_is_and_says_why(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    """In its AdminComment, beside the site's own text."""
    world = a_world(tmp_path)
    world.slurm.comments["7"] = "grant 17"
    wants(world, a_job(**changes))
    assert world.live() == {"c1", "c2", "c3", "c4"}
    passes(world)
    assert world.slurm.comments["7"].startswith("grant 17 | boa: ")
    assert "not planned: " in world.slurm.comments["7"]
    assert said in world.slurm.comments["7"]


def test_a_job_with_a_number_of_tasks_on_each_node_is_planned_where_its_script_counts_them(
    tmp_path: Path,
) -> None:
    """sbatch gives the script the tasks of the width that was asked for; with `tasks` it knows."""
    world = a_world(tmp_path)
    world.slurm.tasks_per_node = 2
    world.slurm.queue = [
        a_job("7", state="PENDING", nodes=""),
        a_job("8", state="PENDING", nodes="", comment="boa:class=default,tasks"),
    ]
    world.nodes.reconcile()
    passes(world)
    assert "unset SLURM_NTASKS" in world.slurm.comments["7"]
    assert [job for job, _ in world.slurm.orders] == ["8"]
    values = world.slurm.orders[0][1]
    assert int(values["NumTasks"]) == 2 * int(values["NumNodes"].partition("-")[0])


def test_planned_jobs_and_own_jobs_share_one_budget(tmp_path: Path) -> None:
    """The more jobs of BOA's own there are, the fewer nodes a job of Slurm gets."""
    found = []
    for count in (0, 12):
        folder = tmp_path / str(count)
        folder.mkdir()
        world = a_world(folder, usd_per_hour=12.0)
        jobs = [job_content(f"own-{n}", hours=20.0, max_gpus=16) for n in range(count)]
        if jobs:
            world.site.service.submit(jobs, user="ann")
            passes(world)
        wants(world, a_job())
        passes(world)
        found.append(world.slurm.queue[0].node_count)
    assert found[1] < found[0], found
