"""Pollux's own simulator, re-implemented from its description, beside its published figures.

    python benchmarks/pollux.py DATA [--quick]

DATA holds ``traces/APP/*.csv`` and ``workloads*/workload-N.csv`` of petuum/adaptdl (branch osdi21-artifact).
Three runs are compared: Tiresias on 16 nodes of 4 T4, which must agree to the second; our Pollux policy in
the same world; and our Pollux policy with autoscaling as the artifact describes it.

The world runs in rounds. Every job works for a round at the goodput measured for its placement (linear
between batch sizes; between node counts where more than four nodes were measured, linear in the triangulation
of (nodes, GPUs, batch per GPU)). Ends of epochs are rounded to seconds, a new placement costs 30 s, and a job
that arrives waits for the end of the round. Policies decide at the end of each round.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from scipy.interpolate import LinearNDInterpolator

from boa_daemon.lab.traces.elastic import read_profile
from boa_daemon.lab.traces.profiles import POLLUX_FACTS, ApplicationFacts
from boa_daemon.testing import an_instance_type
from policies.model import Job as PolicyJob
from policies.model import JobClass, Phase, Width
from policies.rivals.pollux import GoodputShares
from policies.rivals.width_menu import WidthMenu
from policies.speedup import Table

GPUS_PER_NODE = 4
RESTART_SECONDS = 30
TIRESIAS_GPU_SECONDS = 3600 * 16
EPS = 1e-8
SMALL_APPS = ("cifar10", "deepspeech2", "bert")


class Application:
    """One application as measured: step times by placement, training runs by batch size."""

    def __init__(self, home: Path, facts: ApplicationFacts) -> None:
        """Read the three kinds of files."""
        self.name, self.facts = home.name, facts
        runs = {int(path.stem.split("-")[1]): rows_of(path) for path in home.glob("validation-*.csv")}
        self.batches = sorted(runs)
        self.runs = {
            batch: {column: [float(row[column]) for row in runs[batch]] for column in runs[batch][0]}
            for batch in self.batches
        }
        self.epochs = facts.epochs or min(len(rows) for rows in runs.values())
        placed: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
        means: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
        for row in rows_of(home / "placements.csv"):
            digits, local = row["placement"], int(row["local_bsz"])
            times = float(row["step_time"]), float(row["sync_time"])
            placed[digits].append((local, *times))
            means[len(digits), sum(map(int, digits)), local].append(times)
        self.placed = {digits: np.array(points) for digits, points in placed.items()}
        locals_ = [key[2] for key in means]
        self.least_local, self.most_local = min(locals_), facts.max_local_batch or max(locals_)
        points = [(*key, *np.mean(times, axis=0)) for key, times in sorted(means.items())]
        columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
        points += [tuple(float(row[c]) for c in columns) for row in rows_of(home / "scalability.csv")]
        table = np.array(points)
        self._between = LinearNDInterpolator(table[:, :3], table[:, 3:])
        self.step_times = cache(self._step_times)
        self.gain = cache(self._gain)

    def _step_times(self, placement: tuple[int, ...], local: int) -> tuple[float, float]:
        """Return the seconds of a pass, and of waiting for other workers in it."""
        turned = min(placement[i:] + placement[:i] for i in range(len(placement)))
        points = self.placed.get("".join(map(str, turned)))
        if points is not None:
            if not points[0, 0] <= local <= points[-1, 0]:
                raise ValueError(f"{self.name}: {local} samples per GPU were not measured on {turned}")
            return tuple(float(np.interp(local, points[:, 0], points[:, c])) for c in (1, 2))  # type: ignore[return-value]
        found = self._between([min(len(turned), 16), sum(turned), local])[0]
        if np.isnan(found).any():
            raise ValueError(
                f"{self.name}: {turned} at {local} samples per GPU lies outside what was measured"
            )
        return float(found[0]), float(found[1])

    def progress_at(self, epoch: int) -> float:
        """Return the progress at the end of this many epochs: that of the slowest training run."""
        return 0.0 if epoch == 0 else min(run["progress"][epoch - 1] for run in self.runs.values())

    def _gain(self, batch: int, epoch: int) -> float:
        """Return the progress per step at a batch size, interpolated between the trained batch sizes."""
        sqr, var = (
            float(np.interp(batch, self.batches, [self.runs[b][c][epoch] for b in self.batches]))
            for c in ("grad_sqr", "grad_var")
        )
        scale = batch / self.batches[0]
        return (var + sqr) / (var / scale + sqr)

    def split(self, batch: float, gpus: int) -> tuple[int, int]:
        """Return (samples per GPU and pass, extra passes) of a global batch."""
        share = math.ceil(batch / gpus - EPS)
        extra = math.ceil(share / self.most_local - EPS) - 1
        if gpus == 1 and batch > self.batches[0]:
            extra = max(1, extra)
        local = math.ceil(share / (extra + 1) - EPS)
        return min(local, int(self.batches[-1] / (gpus * (extra + 1)))), extra

    def goodput(self, placement: tuple[int, ...], local: int, extra: int, epoch: int) -> float:
        """Return the progress per second."""
        step, sync = self.step_times(placement, local)
        batch = sum(placement) * local * (extra + 1)
        return self.gain(batch, epoch) / (step + (step - sync) * extra)

    @cache  # noqa: B019 - applications live as long as the run
    def best_split(self, placement: tuple[int, ...], epoch: int) -> tuple[int, int]:
        """Return the (samples per GPU and pass, extra passes) of highest goodput among 50 batch sizes."""
        gpus = sum(placement)
        least = max(self.batches[0], self.least_local * gpus)
        splits = {self.split(batch, gpus) for batch in np.geomspace(least, self.batches[-1])}
        allowed = [s for s in splits if self.least_local <= s[0] <= self.most_local]
        allowed = [s for s in allowed if s[0] * gpus * (s[1] + 1) >= self.batches[0]]
        return max(allowed, key=lambda s: (self.goodput(placement, *s, epoch), s))


@dataclass(slots=True)
class Job:
    """One job; `batch` is None if the job may choose it."""

    name: str
    app: Application
    arrived_at: int
    gpus: int
    batch: int | None
    placement: tuple[int, ...] = ()
    local: int = 0
    extra: int = 0
    paused: float = 0.0
    progress: float = 0.0
    epoch: int = 0
    starts: int = 0
    widest: int = 0
    clock: float = 0.0
    ended_at: float | None = None

    def work(self, seconds: float) -> None:
        """Work for a round."""
        self.clock += seconds
        if not self.placement or self.ended_at is not None:
            return
        now = self.clock - seconds
        pause = min(self.paused, seconds)
        self.paused -= pause
        now, seconds = now + pause, seconds - pause
        self.widest = max(self.widest, sum(self.placement)) if seconds > 0 else self.widest
        while seconds > 0 and self.ended_at is None:
            goodput = self.app.goodput(self.placement, self.local, self.extra, self.epoch)
            target = self.app.progress_at(self.epoch + 1)
            if self.progress + goodput * seconds < target:
                self.progress += goodput * seconds
                return
            took = round(float((target - self.progress) / goodput))
            self.epoch, self.progress = self.epoch + 1, target
            now, seconds = now + took, seconds - took
            if self.epoch == self.app.epochs:
                self.ended_at = now
                return
            self.set_batch()

    def place(self, placement: tuple[int, ...]) -> None:
        """Move to other GPUs, or to none."""
        self.placement = placement
        if placement:
            self.set_batch()
            self.paused, self.starts = RESTART_SECONDS, self.starts + 1

    def set_batch(self) -> None:
        """Split the batch over the GPUs, or choose the best."""
        if self.batch is None:
            self.local, self.extra = self.app.best_split(self.placement, self.epoch)
        else:
            self.local, self.extra = self.app.split(self.batch, sum(self.placement))


@dataclass(kw_only=True)
class World:
    """Nodes and jobs in rounds. `allocations` has the node of each GPU of a job, in order of filling."""

    jobs: list[Job]
    nodes: int
    round_seconds: int = 60
    now: int = 0
    gpu_seconds: float = 0.0
    allocations: dict[str, list[int]] = field(default_factory=dict)

    def run(self, decide: Callable[[World, dict[str, Job]], dict[str, list[int]]]) -> float:
        """Run to the end and return the mean JCT in seconds."""
        while any(job.ended_at is None for job in self.jobs):
            for job in self.jobs:
                job.work(self.round_seconds)
            self.now += self.round_seconds
            self.gpu_seconds += self.nodes * GPUS_PER_NODE * self.round_seconds
            present = {j.name: j for j in self.jobs if self.now >= j.arrived_at and j.ended_at is None}
            if not present:
                continue
            self.allocations = {k: v for k, v in self.allocations.items() if k in present}
            wanted = decide(self, present)
            for name, job in present.items():
                if wanted.get(name) != self.allocations.get(name):
                    job.place(tuple(Counter(wanted.get(name, [])).values()))
            self.allocations = wanted
        return float(
            np.mean([job.ended_at - job.arrived_at for job in self.jobs if job.ended_at is not None])
        )


class TiresiasRounds:
    """Two queues by GPU-time, each first come first served, with the requested widths."""

    def __init__(self) -> None:
        """Begin with empty queues."""
        self.first: list[str] = []
        self.second: list[str] = []
        self.running: set[str] = set()
        self.seconds: Counter[str] = Counter()

    def __call__(self, world: World, present: dict[str, Job]) -> dict[str, list[int]]:
        """Return the node of each GPU of the jobs that run next."""
        self.first = [name for name in self.first if name in present]
        self.second = [name for name in self.second if name in present]
        known = {*self.first, *self.second}
        self.first += [name for name in present if name not in known]
        for name, job in present.items():
            if name in self.running:
                self.seconds[name] += world.round_seconds
                if name in self.first and self.seconds[name] * job.gpus >= TIRESIAS_GPU_SECONDS:
                    self.first.remove(name)
                    self.second.append(name)
        left = world.nodes * GPUS_PER_NODE
        wanted = dict(world.allocations)
        self.running = set()
        for name in (*self.first, *self.second):
            if present[name].gpus <= left:
                self.running.add(name)
                left -= present[name].gpus
            else:
                wanted.pop(name, None)
        free = dict.fromkeys(range(world.nodes), GPUS_PER_NODE)
        for node in (node for taken in wanted.values() for node in taken):
            free[node] -= 1
        for name in (*self.first, *self.second):
            if name in self.running and name not in wanted:
                wanted[name] = fill(free, present[name].gpus)
        return wanted


def fill(free: dict[int, int], gpus: int) -> list[int]:
    """Take GPUs from the nodes with most free GPUs, the first of equals; return the node of each GPU."""
    taken: list[int] = []
    while len(taken) < gpus:
        node = max(free, key=lambda number: free[number])
        count = min(free[node], gpus - len(taken))
        taken += [node] * count
        free[node] -= count
    return taken


@dataclass
class PolluxRounds:
    """Our Pollux policy in this world; with a band, the node count is scaled as the artifact describes.

    A job may have at most twice the GPUs of its widest run so far (`learns`), because Pollux has to learn its
    speed. With `over_fair_share` the search for a node count reads speed-ups over the fair share, as the
    published code does: its optimiser changes the base of the functions that the search then calls.
    """

    classes: Mapping[str, JobClass]
    learns: bool = True
    over_fair_share: bool = False
    band: tuple[float, float] | None = None
    limits: tuple[int, int] = (2, 20)
    utilities: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make each class at each cap on its width."""
        self.caps = WidthMenu(classes=MappingProxyType(dict(self.classes)), gpu_type="t4").limits
        capped = {f"{n}@{cap}": narrowed(c, cap) for n, c in self.classes.items() for cap in self.caps}
        machine = an_instance_type(gpu_type="t4", gpus=GPUS_PER_NODE)
        self.policy = GoodputShares(
            menu=WidthMenu(classes=MappingProxyType(capped), gpu_type="t4"),
            instance_type=machine,
            least_nodes=64,
            most_nodes=64,
        )

    def __call__(self, world: World, present: dict[str, Job]) -> dict[str, list[int]]:
        """Return the node of each GPU of each job."""
        nouns = [self.noun(job, world) for job in present.values()]
        if self.band is not None:
            self.scale(world, nouns)
        widths = self.policy.shares(nouns, world.nodes * GPUS_PER_NODE, now=float(world.now))
        return pack(world, {name: width.gpus for name, width in widths.items()})

    def noun(self, job: Job, world: World) -> PolicyJob:
        """Return the policy's view of a job."""
        most = max(1, 2 * job.widest) if self.learns else self.caps[-1]
        cap = max(cap for cap in self.caps if cap <= most)
        return PolicyJob(
            id=job.name,
            class_name=f"{job.app.name}@{cap}",
            arrived_at=float(job.arrived_at),
            phase=job.epoch,
            remaining_gpu_hours=1.0,
            width=Width("t4", sum(job.placement)) if job.placement else None,
            restarts=max(0, job.starts - 1),
        )

    def scale(self, world: World, nouns: list[PolicyJob]) -> None:
        """Follow the band: after 15 rounds outside it, bisect for the node count in its middle."""
        assert self.band is not None
        held = [noun for noun in nouns if noun.width is not None]
        self.utilities.append(self.utility(world.nodes, held, [n.width.gpus for n in held if n.width]))
        if len(self.utilities) <= 15:
            return
        self.utilities.pop(0)
        mean = sum(self.utilities) / len(self.utilities)
        least, most = self.limits
        if not (
            (world.nodes > least and mean < self.band[0]) or (world.nodes < most and mean > self.band[1])
        ):
            return
        target, nodes = sum(self.band) / 2.0, world.nodes
        while least + 1 < most:
            utility = self.best_utility(nodes, nouns, world)
            if utility == target:
                break
            least, most = (least, nodes) if utility < target else (nodes, most)
            nodes = (least + most) // 2
        ends = [(abs(self.best_utility(n, nouns, world) - target), -n, n) for n in (least, most)]
        world.nodes = min(ends)[2]
        self.utilities.clear()

    def best_utility(self, nodes: int, nouns: list[PolicyJob], world: World) -> float:
        """Return the utility of the best shares on this many nodes."""
        widths = self.policy.shares(nouns, nodes * GPUS_PER_NODE, now=float(world.now))
        held = [noun for noun in nouns if noun.id in widths]
        fair = math.ceil(nodes * GPUS_PER_NODE / len(nouns)) if self.over_fair_share else 1
        return self.utility(nodes, held, [widths[noun.id].gpus for noun in held], base=fair)

    def utility(self, nodes: int, nouns: list[PolicyJob], gpus: list[int], *, base: int = 1) -> float:
        """Return the sum of speed-ups over this many GPUs, per GPU of the cluster."""
        total = 0.0
        for noun, count in zip(nouns, gpus, strict=True):
            curve = self.classes[noun.class_name.split("@")[0]].phases[noun.phase].speedups["t4"]
            total += float(curve.speed_at(count) / curve.speed_at(base))
        return total / (nodes * GPUS_PER_NODE)


def narrowed(job_class: JobClass, cap: int) -> JobClass:
    """Return the class without widths above a cap."""
    phases = []
    for phase in job_class.phases:
        table = phase.speedups["t4"]
        widths = table.whole_widths()
        widths = widths[widths <= cap]
        speeds = table.speed_at(widths)
        curve = Table(gpus=tuple(widths.tolist()), speeds=tuple(speeds.tolist()))
        phases.append(Phase(size_gpu_hours=phase.size_gpu_hours, speedups={"t4": curve}))
    return replace(job_class, phases=tuple(phases))


def pack(world: World, widths: dict[str, int]) -> dict[str, list[int]]:
    """Return the node of each GPU: jobs of unchanged width stay; others get the tightest or emptiest node."""
    wanted = {
        name: taken
        for name, taken in world.allocations.items()
        if len(taken) == widths.get(name) and max(taken) < world.nodes
    }
    free = dict.fromkeys(range(world.nodes), GPUS_PER_NODE)
    for node in (node for taken in wanted.values() for node in taken):
        free[node] -= 1
    for name in sorted(widths.keys() - wanted.keys(), key=lambda name: (-widths[name], name)):
        gpus = widths[name]
        fits = [node for node in free if free[node] >= gpus]
        if fits:
            node = min(fits, key=lambda number: (free[number], number))
            free[node] -= gpus
            wanted[name] = [node] * gpus
        elif sum(free.values()) >= gpus:
            wanted[name] = fill(free, gpus)
    return wanted


def applications_of(data: Path) -> dict[str, Application]:
    """Return the six applications by name."""
    return {name: Application(data / "traces" / name, facts) for name, facts in POLLUX_FACTS.items()}


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def jobs_of(
    path: Path, apps: Mapping[str, Application], *, rigid: bool, only: tuple[str, ...] = ()
) -> list[Job]:
    """Return the jobs of a workload; elastic jobs choose their batch, except those that cannot."""
    jobs = []
    for row in rows_of(path):
        if only and row["application"] not in only:
            continue
        app = apps[row["application"]]
        batch = int(row["batch_size"]) if rigid else app.facts.fixed_batch
        jobs.append(Job(row["name"], app, int(row["time"]), int(row["num_replicas"]), batch))
    return jobs


def classes_of(data: Path) -> dict[str, JobClass]:
    """Return the classes of the policy: one per application, with one phase per epoch."""
    found = {}
    for name in POLLUX_FACTS:
        profile = read_profile(data / "traces", name, {"t4": ""}, POLLUX_FACTS)
        job_class = profile.job_class(name, startup_hours=0.0, rescale_hours=RESTART_SECONDS / 3600.0)
        if job_class is None:
            raise SystemExit(f"{name} has no width")
        found[name] = job_class
    return found


def show(what: str, published: str, world: World, mean: float, began: float) -> None:
    """Print one line."""
    hours = world.gpu_seconds / 3600.0
    print(
        f"{what:62s} {mean:9.2f} {hours:8.1f}   {published:26s} {time.perf_counter() - began:6.1f} s",
        flush=True,
    )


def main() -> None:
    """Print each figure beside the published one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--quick", action="store_true", help="only workload-6 under Tiresias and Pollux")
    arguments = parser.parse_args()
    data: Path = arguments.data
    apps = applications_of(data)
    classes = classes_of(data)
    six, one = (data / "workloads" / f"workload-{number}.csv" for number in (6, 1))
    print(f"{'':62s} {'mean JCT':>9s} {'GPU-h':>8s}   published")
    for folder, number, published in (
        ("workloads", 6, "3469.69 s, 1397.3 GPU-h"),
        ("workloads-0.5", 6, "1826.58 s, 857.6 GPU-h"),
        ("workloads", 1, "2473.65 s"),
        ("workloads", 2, "5144.96 s"),
        ("workloads", 3, "3876.26 s"),
    ):
        began = time.perf_counter()
        path = data / folder / f"workload-{number}.csv"
        world = World(jobs=jobs_of(path, apps, rigid=True), nodes=16)
        show(
            f"Tiresias, {folder}/{path.stem}, 16 nodes", published, world, world.run(TiresiasRounds()), began
        )
    for learns in (True, False):
        began = time.perf_counter()
        world = World(jobs=jobs_of(six, apps, rigid=False), nodes=16)
        mean = world.run(PolluxRounds(classes, learns=learns))
        words = "GPUs at most double" if learns else "speeds known"
        show(f"Pollux, workload-6, 16 nodes, 60 s rounds, {words}", "2446.1 s", world, mean, began)
    if arguments.quick:
        return
    for nodes, published in ((8, "2244 s, 260.8 GPU-h"), (16, "1260 s, 515.2 GPU-h")):
        began = time.perf_counter()
        world = World(jobs=jobs_of(one, apps, rigid=False, only=SMALL_APPS), nodes=nodes)
        show(f"Pollux, 85 jobs, {nodes} nodes", published, world, world.run(PolluxRounds(classes)), began)
    for band, published in (((0.35, 0.65), "3787 s, 327.2 GPU-h"), ((0.55, 0.85), "4312 s, 244.5 GPU-h")):
        for over in (False, True):
            began = time.perf_counter()
            world = World(jobs=jobs_of(one, apps, rigid=False, only=SMALL_APPS), nodes=2)
            mean = world.run(PolluxRounds(classes, band=band, over_fair_share=over))
            words = "search over fair share" if over else "search over one GPU"
            show(f"Pollux, 85 jobs, 2-20 nodes, {band[0]}-{band[1]}, {words}", published, world, mean, began)


if __name__ == "__main__":
    main()
