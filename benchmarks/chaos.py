"""Faults for the daemon: `python benchmarks/chaos.py --minutes 10 [--database sqlite|postgresql|both]`.

EC2, SQS and S3 are the fake AWS on moto in a process of its own. A proxy in front of it answers errors, cuts
connections, loses answers and can be cut off. The proxy also plays the nodes: it receives Run Command's
scripts, reports for their units, and records what ran on which node. `boa daemon` and a standby are
processes: they are killed, stopped and continued; their machine's clock jumps (through a preloaded library);
their queue is filled with malformed messages; their database server is killed; their disk is full, read-only
or answers with errors (through the same library), also while a daemon starts; their file descriptors run out;
and their instances are ended and untagged without their knowledge. Meanwhile the caps of the site and of a
team's purse are lowered to just above what is spent.

At the end the faults cease, all jobs have to finish, and the daemon's records are compared with those of the
proxy and of EC2. Prints one table. The exit code is 1 if anything was leaked, lost or doubled, or a cap was
broken.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import boto3
from botocore.config import Config
from chaos_caps import CAP_USD, PRICE, SITE, TEAM, DrawnCaps, booked
from chaos_cloud import Nodes, Weather, Wrong, is_of_team, proxy
from chaos_machine import REGION, Machine, Postgres, built_shim

from boa_daemon.api.client import Client

CLUSTER, MOST = "chaos", 3
HEARTBEAT_SECONDS, PATIENCE_SECONDS = 3.0, 180.0
FAILOVER_SECONDS = 60.0
"""A failover is waited for at most this long."""
BAD = ("leaked", "lost", "doubled", "cap breaches")
SETTINGS = """
[budget]
usd_per_hour = 50.0
usd_per_day_cap = {cap}
max_instances = {most}
[cloud]
provider = "aws"
region = "{region}"
cluster = "{cluster}"
instance_types = ["g5.xlarge"]
zones = ["us-east-1a"]
lease_minutes = 3
instance_profile = "boa-node"
[engine]
name = "ssm"
queue_url = "{queue}"
uri = "s3://boa-chaos/jobs"
[daemon]
state_dir = "{state}"
tick_seconds = 1
idle_hold_seconds = 5
checkpoint_seconds = 5
{database}
{teams}
"""


class Storm:
    """One run on one kind of database."""

    def __init__(
        self,
        folder: Path,
        options: argparse.Namespace,
        url: str,
        crash: Callable[[], None] | None,
    ) -> None:
        self.folder, self.options, self._crash = folder, options, crash
        self.database = "postgresql" if url else "sqlite"
        self.chance = Random(options.seed)
        self.nodes, self.weather = Nodes(chance=Random(options.seed + 1)), Weather()
        self.counts: Counter[str] = Counter()
        self.failovers: list[float] = []
        self.usd, self.most_nodes, self._over = 0.0, 0, threading.Event()
        self.caps, self._url = DrawnCaps(), url
        port = _free_port()
        self.moto = subprocess.Popen(
            [sys.executable, "-m", "boa_daemon.testing.fronts", "--port", str(port), "--boot-seconds", "1",
             "--shutdown-seconds", "1"],
            cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.moto.stdout is not None
        self.moto.stdout.readline()
        direct = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": REGION} | {
            "aws_access_key_id": "t", "aws_secret_access_key": "t",
            "config": Config(retries={"total_max_attempts": 10}),
        }  # fmt: skip
        self.ec2, self.sqs = boto3.client("ec2", **direct), boto3.client("sqs", **direct)
        boto3.client("s3", **direct).create_bucket(Bucket="boa-chaos")
        boto3.client("iam", **direct).create_instance_profile(InstanceProfileName="boa-node")
        self.queue = self.sqs.create_queue(QueueName="chaos")["QueueUrl"]
        self.front = proxy(port, self.nodes, self.weather, Random(options.seed + 2))
        endpoint = f"http://127.0.0.1:{self.front.server_port}"
        shim = built_shim(folder)
        is_shared = not url
        names = ["a", "a"] if is_shared else ["a", "b"]
        self.machines = [Machine(folder / name, shim, endpoint) for name in dict.fromkeys(names)]
        for machine in self.machines:
            (machine.folder / "boa.toml").write_text(self._settings())
        if is_shared:
            # With SQLite both daemons are on one machine and share the file: the second waits at the lock.
            second = Machine(folder / "a", shim, endpoint)
            self.machines.append(second)

    def _settings(self) -> str:
        """Return the settings with the present caps."""
        cap, teams = self.caps.sections()
        return SETTINGS.format(
            cap=cap, most=MOST, region=REGION, cluster=CLUSTER, queue=self.queue, state="state",
            database=f'database = "{self._url}"' if self._url else "", teams=teams,
        )  # fmt: skip

    def _draw_in(self, name: str) -> None:
        """Lower a cap to just above what is spent, if the spend is known now."""
        spent = self._spent()
        if spent is None:
            return
        with self.nodes.lock:
            running = [unit for unit in self.nodes.units if unit.end is None]
        of_team = sum(is_of_team(unit.job) for unit in running)
        if not (of_team if name == TEAM else running):
            return
        booked_usd, measured_usd = spent[name]
        count = of_team if name == TEAM else len(self._live())
        self.caps.draw(name, booked=booked_usd, measured=measured_usd, running=count)
        self._say(f"cap of {name} drawn in to {self.caps.drawn[name].cap:.4f} USD")
        self._tell_caps()

    def _tell_caps(self) -> None:
        """Let the daemons read their settings again."""
        for machine in self.machines:
            machine.read_again(self._settings())

    def _consent(self) -> bool:
        """Let people consent to the restored caps, which loosen limits; return whether a daemon took them."""
        leader = self.leader()
        if leader is None:
            return False
        command = [sys.executable, "-m", "boa_daemon", "config", "apply", "--yes"]
        said = subprocess.run(command, cwd=leader.folder, capture_output=True, text=True, check=False)
        self._say(f"consent: {said.returncode} {said.stderr.strip()[-200:]}")
        return said.returncode == 0

    def _spent(self) -> dict[str, tuple[float, float]] | None:
        """Return the spend by cap, by the daemon's ledger and by ours; None if no daemon answers."""
        leader = self.leader()
        status = leader.get("/status") if leader is not None else None
        costs = leader.get("/cost?by=team") if leader is not None else None
        if not status or not costs or status["fault"] or "books" not in status:
            return None
        storage = booked(status, costs)
        with self.nodes.lock:
            ours = {SITE: self.usd, TEAM: self.nodes.usd_of_team(time.monotonic())}
        return {name: (storage[name], ours[name]) for name in storage}

    def _look_at_caps(self) -> bool:
        """Record the spend under lowered caps; return whether a daemon reported it."""
        spent = self._spent()
        for name, (booked_usd, measured_usd) in (spent or {}).items():
            self.caps.look(name, booked=booked_usd, measured=measured_usd)
        return spent is not None

    def leader(self) -> Machine | None:
        """Return the machine of the leading daemon."""
        for machine in self.machines:
            if machine.process is None or machine.process.poll() is not None:
                continue
            status = machine.get("/status")
            if status and (status.get("leader") or {}).get("pid") == machine.process.pid:
                return machine
        return None

    def run(self) -> dict[str, Any]:
        """Inject faults for the minutes of the options, then wait for calm, and return the outcome."""
        for machine in self.machines:
            machine.start()
        threads = [threading.Thread(target=do, daemon=True) for do in (self._watch, self._speak)]
        for thread in threads:
            thread.start()
        self._wait(lambda: self.leader() is not None, "a leader")
        began = time.monotonic()
        end = began + 60.0 * self.options.minutes
        submitted: list[str] = []
        self.weather.fault_fraction = 0.03
        storms = (
            self._kill, self._pause, self._cut_off, self._jump, self._burst, self._end_one, self._untag,
            self._crash_database, self._talk_nonsense, self._talk_nonsense, self._break_disk,
            self._break_disk, self._take_descriptors,
        )  # fmt: skip
        while time.monotonic() < end:
            submitted += self._submit()
            for name, part in ((TEAM, 0.25), (SITE, 0.65)):
                if name not in self.caps.drawn and time.monotonic() - began > part * (end - began):
                    self._draw_in(name)
            self._look_at_caps()
            self._supervise()
            do = self.chance.choice(storms)
            self._say(f"{do.__name__.strip('_').replace('_', ' ')}; {len(submitted)} jobs so far")
            do()
            time.sleep(self.chance.uniform(0.5, 3.0))
        return self._calm(submitted)

    def _calm(self, submitted: list[str]) -> dict[str, Any]:
        """End all faults, wait for the jobs, and compare the records."""
        self.weather.fault_fraction, self.weather.is_cut_off = 0.0, False
        for machine in self.machines:
            machine.jump(0)
            machine.break_disk(0)
            if machine.process is None or machine.process.poll() is not None:
                machine.start()
        self._wait(self._look_at_caps, "the books", fails=False)
        self.caps.let_go()
        self._tell_caps()
        self._wait(self._consent, "the restored caps", fails=False)
        rows: dict[str, dict[str, Any]] = {}

        def is_done() -> bool:
            leader = self.leader()
            answer = leader.get("/jobs?limit=20000") if leader is not None else None
            rows.update({row["id"]: row for row in (answer or {}).get("jobs", [])})
            left = Counter(row["status"] for row in rows.values())
            trouble = "no daemon leads" if leader is None else (leader.get("/status") or {}).get("fault")
            self._say(f"calm: {dict(left)}; {trouble or 'well'}")
            return bool(rows) and all(row["status"] in ("finished", "failed") for row in rows.values())

        self._wait(is_done, "the jobs", fails=False)
        self._wait(lambda: not self._live(), "idle nodes to go", fails=False)
        leader = self.leader()
        status = {} if leader is None else leader.get("/status") or {}
        lost = [job for job in submitted if rows.get(job, {}).get("status") != "finished"]
        self._over.set()
        # The two ledgers may be read half a second apart.
        found = {
            "database": self.database,
            "minutes": self.options.minutes,
            "jobs": len(submitted),
            "restarts of jobs": sum(row["generation"] for row in rows.values()) - len(rows),
            **{name: self.counts[name] for name in (
                "kills", "pauses", "database crashes", "partitions", "clock jumps", "bursts",
                "disks full", "disks read-only", "disk errors", "starts on a broken disk",
                "descriptor famines",
                "instances ended", "instances untagged", "wrong messages")},
            "calls that failed": sum(self.weather.faults.values()),
            "failovers": len(self.failovers),
            "median failover, s": round(statistics.median(self.failovers or [0.0]), 1),
            "slowest failover, s": round(max(self.failovers, default=0.0), 1),
            "USD spent": round(self.usd, 3),
            "under the site's cap": str(self.caps.drawn.get(SITE, "not drawn in")),
            "under a team's cap": str(self.caps.drawn.get(TEAM, "not drawn in")),
            "leaked": len(self._live()),
            "lost": len(lost),
            "doubled": self.nodes.doubled,
            "cap breaches": int(self.usd > CAP_USD) + int(self.most_nodes > MOST) + self.caps.breaches,
            "fault at the end": status.get("fault", "no daemon"),
        }  # fmt: skip
        if lost:
            found["lost jobs"] = [
                (job, rows.get(job, {}).get("status"), rows.get(job, {}).get("cause")) for job in lost
            ]
        return found

    def _say(self, what: str) -> None:
        """Print the progress if `verbose` is set."""
        if self.options.verbose:
            print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End all processes of the run."""
        self._over.set()
        for machine in self.machines:
            machine.kill(signal.SIGCONT)
            machine.kill()
        self.front.shutdown()
        self.moto.kill()
        self.moto.wait()

    def _wait(self, is_so: Any, what: str, *, fails: bool = True) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_so():
            if time.monotonic() > end:
                self._say(f"gave up waiting for {what}")
                if fails:
                    raise SystemExit(f"{what} did not come: see {self.folder}")
                return
            time.sleep(0.5)

    def _live(self) -> list[str]:
        """Return the instances that cost money by EC2's own list, whatever their tags."""
        states = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
        found = self.ec2.describe_instances(Filters=states)["Reservations"]
        return [each["InstanceId"] for one in found for each in one["Instances"]]

    def _watch(self) -> None:
        """Every half second read from EC2 which instances live and what they cost; end lost units."""
        before = time.monotonic()
        while not self._over.wait(0.5):
            with suppress(Exception):
                live = self._live()
                now = time.monotonic()
                self.usd += len(live) * PRICE * (now - before) / 3600.0
                before, self.most_nodes = now, max(self.most_nodes, len(live))
                with self.nodes.lock:
                    self.nodes.live = set(live)
                    self.nodes.look(now)

    def _speak(self) -> None:
        """Send the units' status reports every few seconds, and their ends at once."""
        said: set[int] = set()
        while not self._over.wait(HEARTBEAT_SECONDS):
            with self.nodes.lock:
                words = [
                    (number, self.nodes.said(unit), unit.end is not None)
                    for number, unit in enumerate(self.nodes.units)
                    if number not in said and unit.node in self.nodes.live
                ]
            for number, word, is_over in words:
                with suppress(Exception):
                    self.sqs.send_message(QueueUrl=self.queue, MessageBody=json.dumps(word))
                    if is_over:
                        said.add(number)

    def _submit(self) -> list[str]:
        """Submit a job of the team with the fewest waiting jobs; return its id once the daemon has it."""
        leader = self.leader()
        answer = leader.get("/jobs?limit=200") if leader is not None else None
        if leader is None or answer is None:
            return []
        waiting = Counter(row["team"] for row in answer["jobs"] if row["status"] == "queued")
        team = min(("wide", TEAM), key=lambda name: waiting[name])
        if waiting[team] > 2:
            return []
        content = {
            "name": team,
            "team": team,
            "class": "default",
            "run": "true",
            "max_gpus": 1,
            "retries": 50,
        }
        try:
            with Client(leader.socket) as client:
                return list(client.post("/jobs", {"jobs": [content]})["jobs"])
        except Exception:
            return []

    def _kill(self) -> None:
        """Kill the leader and measure the time until another daemon ticks."""
        leader = self.leader()
        if leader is None or not self._has_standby(leader):
            return
        self.counts["kills"] += 1
        leader.kill()
        self._time_failover(leader)
        leader.start()

    def _pause(self) -> None:
        """Stop the leader for longer than its lease, let another daemon lead, and continue the first."""
        leader = self.leader()
        if leader is None or self.database == "sqlite" or not self._has_standby(leader):
            return
        self.counts["pauses"] += 1
        leader.kill(signal.SIGSTOP)
        self._time_failover(leader)
        leader.kill(signal.SIGCONT)
        # The daemon finds that it no longer leads and exits; its supervisor starts it again.
        with suppress(subprocess.TimeoutExpired):
            assert leader.process is not None
            leader.process.wait(30.0)
        leader.kill()
        leader.start()

    def _supervise(self) -> None:
        """Restart daemons that have exited, as systemd would."""
        for machine in self.machines:
            if machine.process is not None and machine.process.poll() is not None:
                machine.start()

    def _has_standby(self, leader: Machine) -> bool:
        """Wait until another daemon stands by, so that no program's start is part of the failover."""
        others = [machine for machine in self.machines if machine is not leader]
        self._wait(lambda: any(other.is_standing_by for other in others), "a standby", fails=False)
        return any(other.is_standing_by for other in others)

    def _time_failover(self, before: Machine) -> None:
        """Wait until another daemon has done a tick."""
        began, said = time.monotonic(), set[str]()
        while time.monotonic() - began < FAILOVER_SECONDS:
            for machine in self.machines:
                status = machine.get("/status") if machine is not before else None
                if status and status.get("tick") and not status.get("fault") and status.get("leader"):
                    self.failovers.append(time.monotonic() - began)
                    return
                if machine is not before:
                    said.add(f"{machine.folder.name}: {_told(status)}")
            time.sleep(0.1)
        self.failovers.append(time.monotonic() - began)
        print("no failover in time; the daemons answered:", *sorted(said), sep="\n  ", flush=True)

    def _cut_off(self) -> None:
        """Cut all daemons off from AWS for a while."""
        self.counts["partitions"] += 1
        self.weather.is_cut_off = True
        time.sleep(self.chance.uniform(2.0, 20.0))
        self.weather.is_cut_off = False

    def _jump(self) -> None:
        """Let a machine's clock jump ahead or back; half of the jumps are undone soon."""
        self.counts["clock jumps"] += 1
        machine = self.chance.choice(self.machines)
        size = self.chance.choice([35, 600, 3600, 86_400, 2 * 86_400, 40 * 86_400, 10 * 365 * 86_400])
        machine.jump(self.chance.choice([-1, 1]) * size)
        if self.chance.random() < 0.5:
            time.sleep(self.chance.uniform(0.5, 5.0))
            machine.jump(0)

    def _burst(self) -> None:
        """Let every second call fail for a while."""
        self.counts["bursts"] += 1
        self.weather.fault_fraction = 0.5
        time.sleep(self.chance.uniform(2.0, 8.0))
        self.weather.fault_fraction = 0.03

    def _crash_database(self) -> None:
        """Kill the database server and start it again."""
        if self._crash is not None:
            self.counts["database crashes"] += 1
            self._crash()

    def _break_disk(self) -> None:
        """Break the disk of a machine for up to a minute; every second time a daemon starts on it."""
        machine = self.leader() or self.chance.choice(self.machines)
        name, number = self.chance.choice(
            [("disks full", errno.ENOSPC), ("disks read-only", errno.EROFS), ("disk errors", errno.EIO)]
        )
        self.counts[name] += 1
        machine.break_disk(number)
        if self.chance.random() < 0.5:
            self.counts["starts on a broken disk"] += 1
            machine.kill()
            machine.start()
        time.sleep(self.chance.choice([5.0, 10.0, 20.0, 60.0]))
        machine.break_disk(0)

    def _take_descriptors(self) -> None:
        """Leave the leader no file descriptor for a while."""
        leader = self.leader()
        if leader is not None and leader.limit_descriptors(self.chance.uniform(3.0, 15.0)):
            self.counts["descriptor famines"] += 1

    def _end_one(self) -> None:
        """End an instance without the daemon's knowledge."""
        live = self._live()
        if live:
            self.counts["instances ended"] += 1
            self.ec2.terminate_instances(InstanceIds=[self.chance.choice(live)])

    def _untag(self) -> None:
        """Remove the cluster's tag from an instance, and restore it later."""
        live = self._live()
        if not live:
            return
        self.counts["instances untagged"] += 1
        name = self.chance.choice(live)
        tag = {"Key": "boa:cluster", "Value": CLUSTER}
        with suppress(Exception):
            self.ec2.delete_tags(Resources=[name], Tags=[{"Key": "boa:cluster"}])
        time.sleep(self.chance.uniform(1.0, 10.0))
        with suppress(Exception):
            self.ec2.create_tags(Resources=[name], Tags=[tag])

    def _talk_nonsense(self) -> None:
        """Fill the queue with malformed messages."""
        with self.nodes.lock:
            jobs = [(unit.job, unit.generation) for unit in self.nodes.units[-10:]]
        wrong = Wrong(self.chance)
        for _ in range(5):
            texts = [wrong.message(jobs) or " " for _ in range(10)]
            entries = [{"Id": str(at), "MessageBody": text} for at, text in enumerate(texts)]
            with suppress(Exception):
                self.sqs.send_message_batch(QueueUrl=self.queue, Entries=entries)
                self.counts["wrong messages"] += len(entries)


def _told(status: dict[str, Any] | None) -> str:
    """Return a daemon's status in short."""
    if status is None:
        return "no answer"
    return (
        f"leads: {bool(status.get('leader'))}, has ticked: {bool(status.get('tick'))}, {status.get('fault')}"
    )


def _free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def storm(options: argparse.Namespace, database: str) -> dict[str, Any] | None:
    """Return the outcome of one run, or None if the database is not available here."""
    if database == "sqlite":
        return one_run(options, "", None)
    server = Postgres(Path("/tmp") / f"boa-chaos-pg-{os.getpid()}")
    with server as url:
        return one_run(options, url, server.crash) if url else None


def one_run(options: argparse.Namespace, url: str, crash: Callable[[], None] | None) -> dict[str, Any]:
    """Run in a folder, which is kept if anything was wrong."""
    folder = Path(tempfile.mkdtemp(prefix="boa-chaos"))
    run = Storm(folder, options, url, crash)
    try:
        found = run.run()
    finally:
        run.close()
    if options.keep or any(found[name] for name in BAD):
        print(f"logs: {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def main() -> int:
    """Run the storms, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="say what is done")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = parser.parse_args()
    wanted = ["sqlite", "postgresql"] if options.database == "both" else [options.database]
    runs = [found for database in wanted if (found := storm(options, database)) is not None]
    for name in (name for name in (runs[0] if runs else ()) if name != "lost jobs"):
        print(f"{name:>22}  " + "  ".join(f"{run[name]!s:>14}" for run in runs))
    for run in runs:
        if "lost jobs" in run:
            print(run["lost jobs"])
    bad = any(run[name] for run in runs for name in BAD)
    return 1 if bad or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
