"""The slurm engine on a real slurmctld with four slurmd: kills, lost nodes, two users, no second start."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from engine_bench import DDP, NUMPY, Bench, until
from slurm_cluster import Cluster, slurm_cluster, why_no_slurm

from boa_daemon.engines.slurm import SlurmEngine
from boa_daemon.job.unit import read_json
from boa_daemon.slurm.commands import Slurm
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted, Refused

pytestmark = [
    pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm()),
    pytest.mark.exhaustive,
    pytest.mark.xdist_group("slurm"),
]
PATIENT = "--steps 100000 --pause 0.005"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A Slurm with four nodes; its logs stay beside the files of the test."""
    with slurm_cluster() as found:
        try:
            yield found
        finally:
            shutil.copytree(found.root / "log", tmp_path / "slurm-log")


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path) -> Callable[[], SlurmEngine]:
    """A maker of engines on one folder, as a daemon and its successors are."""
    return lambda: SlurmEngine(tmp_path / "root", slurm=Slurm(environment=cluster.environment))


@pytest.fixture
def bench(make: Callable[[], SlurmEngine], tmp_path: Path) -> Iterator[Bench]:
    """An engine with one job, whose nodes are ready."""
    (tmp_path / "work").mkdir()
    bench = Bench(engine=make(), workdir=tmp_path / "work", nodes=("n1", "n2", "n3", "n4"))
    until(lambda: set(bench.engine.prepare([a_node(name) for name in bench.nodes]).values()) == {Accepted()})
    yield bench
    for job, report in bench.engine.poll().items():
        if not report.is_over:
            bench.engine.kill(job, report.generation)


def jobs_of(cluster: Cluster) -> list[list[str]]:
    """Return number, state, nodes, user and comment of the jobs of Slurm."""
    said = cluster.run("squeue", "-h", "-t", "all", "-o", "%A|%T|%N|%u|%k")
    return [line.split("|") for line in said.splitlines()]


@pytest.mark.slurm
def test_a_script_with_loader_workers_loses_no_step_at_any_width_through_any_kill(
    bench: Bench, cluster: Cluster, make: Callable[[], SlurmEngine]
) -> None:
    """1, 2, 4 and 1 GPUs; slurmctld, a slurmd and the daemon are killed while the job runs."""
    bench.admit(f"{DDP} --steps 100000 --workers 2 --pause 0.01", stop_grace_seconds=60.0)
    done = 0
    for width, nodes in ((1, 1), (2, 2), (4, 2), (1, 1)):
        # A controller that was silent a moment ago is not asked again at once.
        bench.generation += 1
        until(lambda w=width, n=nodes: bench.engine.start(bench.order(w, nodes=n)) == Accepted())  # type: ignore[misc]
        bench.wait_step(done + 3)
        if bench.generation == 1:
            cluster.kill("n1")  # Its slurmstepd goes on, and the next slurmd finds it.
            cluster.start_node("n1")
        if bench.generation == 2:
            # What a controller has not written when it is killed, it does not know afterwards; it writes
            # what has changed.
            began = time.time()
            present = max(int(job[0]) for job in jobs_of(cluster))
            cluster.run("scontrol", "update", f"jobid={present}", "admincomment=changed")
            until(lambda began=began: (cluster.root / "state/job_state").stat().st_mtime > began)  # type: ignore[misc]
            cluster.kill("slurmctld")
            step = bench.report().step or 0
            bench.wait_step(step + 3)
            assert bench.report().phase == "running"
            cluster.start_controller()
        if bench.generation == 3:
            bench.engine = make()  # The daemon was killed.
            assert bench.engine.reattach()[bench.job].phase == "running"
        done = (bench.report().step or 0) + 3
        bench.wait_step(done)
        bench.stop()
        end = bench.wait_end()
        assert (end.phase, end.lost_steps) == ("stopped", 0), end
        done = end.step or 0

    assert [end.gpus for end in bench.ends] == [1, 2, 4, 1]
    until(lambda: [job[1] for job in jobs_of(cluster)] == ["COMPLETED"] * 4)


def test_a_daemon_that_died_before_it_wrote_the_answer_starts_no_second_job(
    bench: Bench, cluster: Cluster, make: Callable[[], SlurmEngine], tmp_path: Path
) -> None:
    """The comment finds the job that Slurm accepted."""
    bench.admit("sleep 600")
    bench.start(1)
    bench.wait(lambda report: report.phase == "running")
    answer = next((tmp_path / "root").glob("*/g1/slurm.json"))
    answer.unlink()
    (answer.parent / "n0" / "keeper.json").rename(tmp_path / "aside")
    bench.engine = make()
    bench.engine.reattach()

    assert len(jobs_of(cluster)) == 1
    assert read_json(answer) == {"job": jobs_of(cluster)[0][0]}
    (tmp_path / "aside").rename(answer.parent / "n0" / "keeper.json")
    bench.engine.kill(bench.job, 1)
    assert bench.wait_end().cause == "killed"


def test_a_controller_that_does_not_answer_refuses_no_start_for_good(
    bench: Bench, cluster: Cluster, make: Callable[[], SlurmEngine]
) -> None:
    """While slurmctld is dead a start is refused, or begun later; afterwards the job runs, once."""
    bench.admit("sleep 2")
    cluster.kill("slurmctld")
    bench.generation = 1
    assert isinstance(bench.engine.start(bench.order(1)), Refused | Accepted)
    cluster.start_controller()
    time.sleep(5.5)  # The engine does not ask a silent controller again at once.
    assert bench.engine.start(bench.order(1)) == Accepted()
    assert bench.wait_end().phase == "finished"
    assert len(jobs_of(cluster)) == 1


@pytest.mark.slurm
@pytest.mark.parametrize("whom", [("pid",), ("guard",), ("guard", "pid")], ids=["keeper", "guard", "both"])
def test_a_training_goes_on_when_those_that_keep_it_are_killed(
    bench: Bench, tmp_path: Path, whom: tuple[str, ...]
) -> None:
    """Others take its processes over, and an order to stop reaches them: nothing is lost."""
    bench.admit(f"{NUMPY} {PATIENT}", stop_grace_seconds=60.0)
    bench.start(2, nodes=2)
    bench.wait_step(5)
    file = next((tmp_path / "root").glob("*/g1/n1/keeper.json"))
    keeper = read_json(file)
    assert keeper is not None
    for name in whom:
        os.kill(keeper[name], signal.SIGKILL)
    if whom != ("guard",):
        until(lambda: (read_json(file) or keeper)["pid"] != keeper["pid"])
    bench.wait_step((bench.report().step or 0) + 50)
    bench.stop()
    end = bench.wait_end()
    assert (end.phase, end.lost_steps) == ("stopped", 0), end


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("how", "said"),
    [
        (("scontrol", "update", "nodename=n1", "state=down", "reason=fire"), "NODE_FAIL"),
        (("scancel",), "CANCELLED"),
    ],
    ids=["node down", "cancelled by hand"],
)
def test_a_job_that_slurm_ends_is_told_in_its_words(
    bench: Bench, cluster: Cluster, how: tuple[str, ...], said: str
) -> None:
    """A lost node and a job that an administrator cancels: the report has Slurm's state."""
    bench.admit("sleep 600")
    bench.start(1)
    bench.wait(lambda report: report.phase == "running")
    number = jobs_of(cluster)[0][0]
    cluster.run(*how, *([number] if how[0] == "scancel" else []))
    end = bench.wait_end()
    assert (end.phase, end.cause) in (("stopped", None), ("failed", "agent-lost"), ("failed", "signal"))
    assert f"Slurm ended its job {number} as {said}" in end.evidence


def test_a_job_that_waits_in_slurm_says_why_and_stops_before_it_began(bench: Bench, cluster: Cluster) -> None:
    """Its node is somebody else's."""
    cluster.run("sbatch", "-p", "owned", "-w", "n1", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
    until(lambda: jobs_of(cluster)[0][1] == "RUNNING")
    bench.admit("sleep 1")
    bench.start(1)
    report = bench.wait(lambda report: "(" in report.evidence)
    assert report.phase == "starting"
    assert "waits in Slurm as job" in report.evidence
    bench.stop()
    assert bench.wait_end().phase == "stopped"


def test_options_are_handed_through_and_others_refused(bench: Bench, cluster: Cluster) -> None:
    """A job chooses its nice value, and not its user."""
    assert bench.admit("sleep 1", slurm_options=("--nice=7",)) == Accepted()
    bench.start(1)
    assert bench.wait_end().phase == "finished"
    assert "Nice=7" in cluster.run("scontrol", "show", "job", jobs_of(cluster)[0][0])
    said = bench.admit("sleep 1", slurm_options=("--uid=0",))
    assert isinstance(said, Refused)
    assert "--uid is not among the options" in said.reason


def test_jobs_run_as_their_submitters(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two users: in Slurm, for the command, and for the files; neither reads the other's."""
    with suppress(KeyError):
        pwd.getpwnam("games")
    tree = str(Path(__file__).parent.parent.parent)
    monkeypatch.setenv("PYTHONPATH", tree)
    if not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("no Python that other users may run")
    root = Path(tempfile.mkdtemp(prefix="boa-users", dir="/tmp"))
    root.chmod(0o755)
    try:
        engine = SlurmEngine(
            root / "jobs",
            slurm=Slurm(environment=cluster.environment),
            own_user=True,
            python="/usr/bin/python3",
        )
        (root / "jobs").mkdir(mode=0o755)
        for number, user in enumerate(("games", "mail")):
            bench = Bench(engine=engine, workdir=Path("/tmp"), job=f"job-{number}", nodes=("n1", "n2"))
            bench.admit("id -un; echo kept > $BOA_CHECKPOINT_DIR/mine; ls $BOA_CHECKPOINT_DIR", user=user)
            bench.start(2, nodes=2)
            end = bench.wait_end()
            assert end.phase == "finished", (end, bench.printed())
            assert bench.printed().split()[0] == user
            assert jobs_of(cluster)[number][3] == user
            folder = engine.layout.checkpoints(bench.job)
            assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (pwd.getpwnam(user).pw_uid, 0o700)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@pytest.mark.slurm
@pytest.mark.parametrize("is_restarted", [False, True], ids=["while it runs", "while no daemon runs"])
def test_a_job_whose_folder_somebody_deleted_leaves_its_nodes(
    bench: Bench, cluster: Cluster, make: Callable[[], SlurmEngine], is_restarted: bool
) -> None:
    """It stayed unknown and kept them for ever."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(2, nodes=2)
    bench.wait_step(3)
    shutil.rmtree(bench.engine.layout.job("a"))  # type: ignore[attr-defined]
    if is_restarted:
        bench.engine = make()
        bench.admit(f"{NUMPY} {PATIENT}")
        bench.engine.reattach()
        assert bench.engine.start(bench.order(2, nodes=2)) == Accepted()
    end = bench.wait_end()
    assert (end.phase, end.cause) == ("failed", "agent-lost")
    assert "deleted" in end.evidence
    assert [state for _, state, *_ in jobs_of(cluster)] == ["CANCELLED"]
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(2, nodes=2)
    assert bench.wait_step(3).generation == 2
