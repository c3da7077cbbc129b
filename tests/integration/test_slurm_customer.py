"""Slurm's power saving on a real slurmctld gets its nodes from a daemon on the simulated cloud."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_site import Site, a_site, wait_for
from slurm_cluster import Cluster, slurm_cluster, why_no_slurm

from boa_daemon.job.unit import read_json

pytestmark = [
    pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm()),
    pytest.mark.exhaustive,
    pytest.mark.xdist_group("slurm"),
]
BOA = Path(sys.executable).parent / "boa"
BOOT_SECONDS = 16.0
SETTINGS = """
[budget]
usd_per_hour = {usd}
usd_per_day_cap = {cap}
max_instances = 8
[cloud]
boot_seconds = {boot}
instance_types = ["g5.12xlarge"]
[slurm]
conf = "{conf}"
run = '''
export CONF={conf}
exec unshare -u sh -c "hostname $BOA_SLURM_NODE; exec /usr/sbin/slurmd -D -b -f $CONF -N $BOA_SLURM_NODE"
'''
[slurm.partitions.{partition}]
instance_type = "g5.12xlarge"
[steady]
minimum_hold_seconds = 1
[engine]
own_user = false
[daemon]
state_dir = "state"
tick_seconds = 0.5
idle_hold_seconds = 1
"""


class World:
    """A Slurm and a daemon that provides its nodes."""

    def __init__(self, site: Site, cluster: Cluster) -> None:
        self.site, self.cluster = site, cluster

    def boa(self, *words: str, code: int = 0) -> str:
        """Run a command of BOA beside the settings; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "boa_daemon", *words],
            cwd=self.site.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def jobs(self) -> list[dict[str, Any]]:
        """Return the daemon's jobs, those that are over too."""
        return json.loads(self.boa("jobs", "--all", "-o", "json"))["jobs"]  # type: ignore[no-any-return]

    def sbatch(self, *options: str, run: str = "srun hostname; sleep 2") -> str:
        """Submit a job to Slurm; return its number."""
        said = self.cluster.run(
            "sbatch", "--parsable", "-o", str(self.site.folder / "out"), *options, "--wrap", run
        )
        return said.strip()

    def state(self, job: str) -> str:
        """Return the state of a job of Slurm."""
        return self.cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def wait(self, is_so: Callable[[], bool], seconds: float = 150.0) -> None:
        """Wait until something is so; show the daemon's log if it never is."""
        until = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < until, self.site.log[-4000:]
            time.sleep(0.1)

    def is_empty(self) -> bool:
        """Return whether Slurm has no powered node in the partition, and BOA has no node."""
        states = self.cluster.run("sinfo", "-h", "-N", "-p", "rented", "-o", "%T").split()
        return set(states) == {"idle~"} and not json.loads(self.boa("instances", "-o", "json"))["instances"]


def _write_programs(site: Site, folder: Path, settings: str) -> None:
    """Write the settings, and the programs that Slurm calls."""
    (site.folder / "boa.toml").write_text(settings)
    subprocess.check_call(
        [
            sys.executable, "-m", "boa_daemon", "slurm", "config", "--write", "--folder", str(folder),
            "--config", str(site.folder / "boa.toml"), "--program", str(BOA),
        ],
        cwd=site.folder, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _end_nodes(site: Site) -> None:
    """End the daemon, and the slurmd of nodes that it has not given back."""
    if site.process is not None and site.process.poll() is None:
        site.end(signal.SIGKILL)
    for file in site.folder.glob("state/jobs/*/*/n*/keeper.json"):
        if (file.parent / "exit.json").exists():
            continue
        kept, course = read_json(file) or {}, read_json(file.parent / "course.json") or {}
        for pid in (kept.get("guard"), kept.get("pid"), course.get("child")):
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def a_world(
    *,
    cap: float = 2000.0,
    usd: float = 60.0,
    boot: float = 1.0,
    partition: str = "rented",
    start: bool = True,
) -> Iterator[World]:
    """Yield a Slurm whose nodes `c1` to `c4`, or a thousand `big` ones, come from a daemon."""
    with a_site() as site:
        folder = site.folder / "bin"
        given = {"cap": cap, "usd": usd, "boot": boot, "partition": partition}
        # Before slurmctld starts, which does without power saving where a program is missing.
        _write_programs(site, folder, SETTINGS.format(conf="", **given))
        programs = {name: str(folder / f"boa-{name}") for name in ("resume", "suspend", "prolog")}
        with slurm_cluster(("n1",), **programs, seconds=6) as cluster:
            _write_programs(site, folder, SETTINGS.format(conf=cluster.conf, **given))
            try:
                if start:
                    site.up()
                yield World(site, cluster)
            finally:
                _end_nodes(site)


@pytest.mark.slurm
def test_power_saving_end_to_end_leaves_nothing_behind() -> None:
    """An unchanged sbatch runs on rented nodes, which are billed and given back; slurmctld restarts once."""
    with a_world(boot=BOOT_SECONDS) as world:
        began = time.monotonic()
        job = world.sbatch("-N2", "--exclusive", "-p", "rented")
        world.wait(lambda: world.state(job) == "RUNNING")
        took = time.monotonic() - began
        print(f"RUNNING {took:.1f} s after sbatch, with a boot of {BOOT_SECONDS:g} s")  # noqa: T201
        world.wait(lambda: world.state(job) == "COMPLETED")
        assert sorted((world.site.folder / "out").read_text().split()) == ["c1", "c2"]
        world.cluster.restart_controller()
        world.wait(world.is_empty)
        rows = world.jobs()
        assert sorted(row["name"] for row in rows) == ["slurm-c1", "slurm-c2"]
        assert all(row["status"] == "cancelled" and row["usd"] > 0.0 for row in rows)
        assert took < BOOT_SECONDS + 5.0 + max(os.getloadavg()[0] - 2.0, 0.0), took


def test_a_refusal_goes_back_into_slurm_with_its_sentence() -> None:
    """A day's cap that pays for no node: the job is requeued, and node and job say why."""
    with a_world(cap=0.5) as world:
        job = world.sbatch("-N1", "--exclusive", "-p", "rented")
        world.wait(lambda: "boa:" in world.cluster.run("scontrol", "show", "node", "c1"))
        said = world.cluster.run("scontrol", "show", "node", "c1")
        assert "cap" in said.partition("Reason=")[2], said
        listed = world.cluster.run("squeue", "-h", "-j", job, "-O", "admin_comment:200")
        assert listed.startswith("boa: "), listed
        assert "cap" in listed
        assert {row["status"] for row in world.jobs()} == {"cancelled"}


def test_suspend_ends_well_for_a_node_that_never_was_and_without_a_daemon() -> None:
    """Slurm would leave the node in POWERING_DOWN for ever."""
    with a_world() as world:
        assert "1 not known here" in world.boa("slurm", "suspend", "c4")
        world.site.end(signal.SIGTERM)
        world.boa("slurm", "suspend", "c4")


def test_a_thousand_nodes_are_asked_for_within_two_seconds_and_cut_by_the_limits() -> None:
    """One call; the same call again asks for none; no more nodes are rented than the limit says."""
    with a_world(boot=60.0, partition="many") as world:
        boa = [sys.executable, "-m", "boa_daemon", "slurm", "resume", "big[1-1000]"]
        answers = []
        for _ in range(2):
            began = time.monotonic()
            answers.append(subprocess.check_output(boa, cwd=world.site.folder, text=True))
            took = time.monotonic() - began
            print(f"1000 nodes: answered after {took:.2f} s")  # noqa: T201
            assert took < 2.0 + (os.getloadavg()[0] if os.getloadavg()[0] > 2.0 else 0.0)
        assert [answer.split()[0] for answer in answers] == ["1000", "0"]
        wait_for(lambda: bool(json.loads(world.boa("instances", "-o", "json"))["instances"]), world.site)
        assert len(json.loads(world.boa("instances", "-o", "json"))["instances"]) <= 8


@pytest.mark.slurm
def test_a_daemon_killed_after_slurms_request_loses_and_doubles_no_node() -> None:
    """Killed at once, killed while its nodes boot, and asked while it is dead: each node has one job."""
    with a_world(boot=3.0, start=False) as world:
        job = world.sbatch("-N2", "--exclusive", "-p", "rented")
        world.wait(lambda: "#" in world.cluster.run("sinfo", "-h", "-N", "-n", "c1", "-o", "%T"))
        world.site.up()  # It was dead when Slurm asked.
        world.wait(lambda: len(world.jobs()) == 2)
        world.site.end(signal.SIGKILL)
        world.site.up()
        world.boa("slurm", "resume", "c[1-2]")
        world.wait(lambda: world.state(job) == "COMPLETED")
        assert sorted(row["name"] for row in world.jobs()) == ["slurm-c1", "slurm-c2"]
        world.wait(world.is_empty)


def test_a_node_that_the_cloud_takes_back_is_drained_and_its_job_requeued() -> None:
    """The warning of an interruption drains the node; an ended node is powered down with the reason."""
    with a_world() as world:
        job = world.sbatch("-N1", "--exclusive", "-p", "rented", "--requeue", run="sleep 600")
        world.wait(lambda: world.state(job) == "RUNNING")
        row = next(row for row in world.jobs() if row["status"] == "running")
        world.boa("simulate-interrupt", row["id"])
        world.wait(
            lambda: (
                "boa: the cloud takes the node back" in world.cluster.run("scontrol", "show", "node", "c1")
            )
        )
        assert "drain" in world.cluster.state("c1")
        world.cluster.run("scancel", job)


@pytest.mark.slurm
def test_a_job_that_names_a_class_runs_on_as_many_nodes_as_the_budget_is_worth() -> None:
    """It asks for four nodes, and begins on fewer, without a restart; the others are never rented."""
    with a_world(usd=3.0) as world:
        job = world.sbatch(
            "-N4", "--exclusive", "-p", "rented", "--comment=boa:class=default",
            run="echo $SLURM_RESTART_COUNT; srun hostname; sleep 3",
        )  # fmt: skip
        world.wait(lambda: world.state(job) == "COMPLETED")
        hosts = (world.site.folder / "out").read_text().split()
        assert 1 <= len(hosts) < 4, hosts
        assert len(world.jobs()) == len(hosts)
        world.wait(world.is_empty)


def test_a_class_whose_widths_are_wider_than_the_request_gets_more_nodes() -> None:
    """One node is asked for, up to four are allowed, and there is money: it begins on four."""
    with a_world(usd=100.0) as world:
        job = world.sbatch(
            "-N1", "--exclusive", "-p", "rented", "--comment=boa:class=default,max_gpus=16",
            run="srun hostname; sleep 3",
        )  # fmt: skip
        world.wait(lambda: world.state(job) == "COMPLETED")
        assert sorted((world.site.folder / "out").read_text().split()) == ["c1", "c2", "c3", "c4"]
        world.wait(world.is_empty)


def test_an_elastic_job_is_requeued_with_another_width_and_goes_on_from_its_checkpoint() -> None:
    """The budget falls while it runs on four nodes; it saves when it is told to, and loses nothing."""
    script = """
step=$(cat step 2>/dev/null || echo 0); trap 'echo $step > step; exit 0' TERM
echo "from $step on $SLURM_JOB_NUM_NODES"
while [ $step -lt 1200 ]; do step=$((step+1)); echo $step > step; sleep 0.2; done; echo done
"""
    with a_world(usd=100.0) as world:
        job = world.sbatch(
            "-N4", "--exclusive", "-p", "rented", "--requeue", f"--chdir={world.site.folder}",
            "--open-mode=append", "--comment=boa:class=default,elastic", run=script,
        )  # fmt: skip
        world.wait(lambda: world.state(job) == "RUNNING")
        file = world.site.folder / "boa.toml"
        file.write_text(file.read_text().replace("usd_per_hour = 100.0", "usd_per_hour = 3.0"))
        assert world.site.process is not None
        world.site.process.send_signal(signal.SIGHUP)
        out = world.site.folder / "out"
        world.wait(lambda: out.exists() and "done" in out.read_text(), seconds=400.0)
        begins = [
            line.split()
            for line in (world.site.folder / "out").read_text().splitlines()
            if line.startswith("from")
        ]
        assert int(begins[0][3]) == 4 > int(begins[-1][3]), begins
        assert int(begins[-1][1]) > 0, begins
