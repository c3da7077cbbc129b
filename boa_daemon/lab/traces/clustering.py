"""Classes by clustering: the jobs of a history in few classes, with speed-ups that are assumed.

A history says on how many GPUs a job ran, and how long; a plan needs classes that may run on several widths.
Jobs of one GPU type that are alike in width and run time become a class, by k-means on (ln width, ln hours).
The number of classes is the one with the least

    n d ln(S / (n d) + floor) - 2 sum_i n_i ln(n_i / n) + k (d + 1) ln n

    symbol   here      meaning
    n, d     points    number of jobs; 2 features
    n_i      sizes     jobs of class i: the likelihood of a job's class pays for each split
    S        error     sum of the squared distances to the centres
    k        centres   number of classes
    floor    FLOOR     run times and widths that differ by a fifth are the same

A class may use widths from a quarter of its narrowest job's to four times its widest one's, no wider than the
widest job of its GPU type, in powers of two and at the widths that ran. At the width at which a job ran it
takes exactly the time that it took; at others it takes what the assumed speed-up says. Jobs that had parts of
a GPU keep their places.

Cost: O(jobs x classes) for each of some 80 runs of k-means, on at most 20,000 jobs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2, vq

from boa_daemon.errors import InputError
from boa_daemon.traces.reader import Trace, TraceJob
from boa_daemon.traces.workload import SHORTEST_WINDOW_HOURS, Workload
from policies.fast_dataclasses import fast_init
from policies.kinds import kind_of
from policies.model import JobClass, Phase
from policies.speedup import MAX_GPUS, Amdahl, Floats, PowerLaw, SpeedupCurve, Table

FLOOR = 0.05
MOST_CLASSES = 8
"""Most classes of one GPU type."""
MOST_POINTS = 20_000
_TRIES, _SEED, _SPAN = 5, 0, 4
DEFAULT = "amdahl:0.97"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a job did: its width, its hours, and its GPU type."""

    job: TraceJob
    gpu_type: str
    gpus: int
    hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFit:
    """A class of a clustering: its jobs' widths and hours, and how much they differ within it."""

    name: str
    jobs: int
    gpus: tuple[int, int]
    median_hours: float
    spread_factor: float
    """Nine of ten jobs run at most this many times longer or shorter than the median."""

    def to_document(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return {
            "name": self.name,
            "jobs": self.jobs,
            "min_gpus": self.gpus[0],
            "max_gpus": self.gpus[1],
            "median_hours": self.median_hours,
            "spread_factor": self.spread_factor,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Clustered:
    """A workload in clusters, and how good the clusters are.

    `explained_hours` and `explained_gpus` are the fractions of the variance of the logarithms of run time and
    width that the classes explain: 1 where all jobs of each class are alike.
    """

    workload: Workload
    fits: tuple[ClassFit, ...]
    explained_hours: float
    explained_gpus: float
    assumed: str


def parse_speedup(text: str) -> tuple[str, float]:
    """Return (form, parameter) of an assumed speed-up: ``amdahl:0.97``, ``power:0.9`` or ``rigid``.

    Raises:
        InputError: when it is none of these.
    """
    form, _, number = text.strip().lower().partition(":")
    try:
        value = float(number) if number else 1.0
    except ValueError:
        value = math.nan
    if form == "rigid" and not number:
        return form, 1.0
    if form not in ("amdahl", "power") or not number or not 0.0 < value <= 1.0:
        hint = "Write amdahl:0.97 (parallel fraction), power:0.9 (exponent), or rigid (one width each)"
        raise InputError(f"--speedup {text!r} is no speed-up", hint=hint)
    return form, value


def cluster(found: Workload, *, speedup: str = DEFAULT, most: int = MOST_CLASSES) -> Clustered:
    """Return the jobs of a history in at most `most` classes per GPU type.

    Raises:
        InputError: when the history has classes of its own, or the speed-up is none.
    """
    assumed = parse_speedup(speedup)
    parts = {one.name for one in found.classes if one.may_share}
    known = {one.name: _alone(one) for one in found.classes if not one.may_share}
    ran = [
        Ran(job=job, gpu_type=kind, gpus=gpus, hours=hours * job.scale)
        for job in found.trace.jobs
        if job.class_name not in parts
        for kind, gpus, hours in (known[job.class_name],)
    ]
    by_type: dict[str, list[Ran]] = defaultdict(list)
    for one in ran:
        by_type[one.gpu_type].append(one)
    classes = [one for one in found.classes if one.may_share]
    jobs = {job.id: job for job in found.trace.jobs if job.class_name in parts}
    fits: list[ClassFit] = []
    groups: list[list[Ran]] = []
    for gpu_type, some in sorted(by_type.items()):
        widest = max(one.gpus for one in some)
        for number, group in enumerate(_groups(some, most), start=1):
            job_class, own = _class(f"{gpu_type}-c{number}", group, assumed, widest, found)
            classes.append(job_class)
            jobs |= {job.id: job for job in own}
            fits.append(_fit(job_class.name, group))
            groups.append(group)
    trace = Trace(tuple(jobs[job.id] for job in found.trace.jobs))
    return Clustered(
        workload=replace(
            found,
            source=f"{found.source}, clustered",
            trace=trace,
            classes=tuple(classes),
            notes=(*_notes(found, speedup),),
        ),
        fits=tuple(fits),
        explained_hours=_explained([[math.log(one.hours) for one in group] for group in groups]),
        explained_gpus=_explained([[math.log(one.gpus) for one in group] for group in groups]),
        assumed=speedup,
    )


def _alone(job_class: JobClass) -> tuple[str, int, float]:
    """Return (GPU type, GPUs, hours) of the jobs of a class with one width, at scale 1."""
    (phase, *others), (kind, *kinds) = job_class.phases, job_class.phases[0].speedups
    widths = phase.speedups[kind].whole_widths()
    if others or kinds or len(widths) != 1:
        hint = "`boa trace import` writes its classes as they are"
        raise InputError(f"class {job_class.name} of this source has measured speed-ups", hint=hint)
    return (
        kind_of(kind).card,
        int(widths[0]),
        phase.size_gpu_hours / float(phase.speedups[kind].speed_at(widths)[0]),
    )


def _groups(some: Sequence[Ran], most: int) -> list[list[Ran]]:
    """Return the jobs of one GPU type in clusters, from the least work to the most."""
    points = np.array([[math.log(one.gpus), math.log(one.hours)] for one in some])
    centres = _centres(points, most)
    labels = vq(points, centres)[0]
    groups: list[list[Ran]] = [[] for _ in centres]
    for one, label in zip(some, labels.tolist(), strict=True):
        groups[label].append(one)
    return sorted(
        (group for group in groups if group),
        key=lambda group: sum(math.log(one.gpus * one.hours) for one in group) / len(group),
    )


def _centres(points: Floats, most: int) -> Floats:
    """Return the centres of the best number of clusters; the sample is every n-th job of many."""
    sample = points[:: max(1, math.ceil(len(points) / MOST_POINTS))]
    n, d = sample.shape
    distinct = len(np.unique(sample, axis=0))
    best: tuple[float, Floats] | None = None
    for k in range(1, min(most, distinct) + 1):
        for attempt in range(_TRIES if k > 1 else 1):
            chance = np.random.default_rng([_SEED, k, attempt])
            centres, labels = (
                kmeans2(sample, k, minit="++", rng=chance, missing="warn")
                if k > 1
                else (
                    sample.mean(axis=0, keepdims=True),
                    np.zeros(n, dtype=int),
                )
            )
            error = float(((sample - centres[labels]) ** 2).sum())
            sizes = np.bincount(labels, minlength=k)
            mixing = -2.0 * float((sizes[sizes > 0] * np.log(sizes[sizes > 0] / n)).sum())
            score = n * d * math.log(error / (n * d) + FLOOR) + mixing + k * (d + 1) * math.log(n)
            if best is None or score < best[0] - 1e-9:
                best = (score, centres)
    assert best is not None
    return best[1]


def _class(
    name: str, group: Sequence[Ran], assumed: tuple[str, float], widest: int, found: Workload
) -> tuple[JobClass, list[TraceJob]]:
    """Return the class of a cluster, and its jobs with their scales."""
    form, value = assumed
    ran_on = sorted({one.gpus for one in group})
    if form == "rigid":
        widths = ran_on
        speeds = [float(width) for width in widths]
    else:
        low, high = max(1, ran_on[0] // _SPAN), min(widest, ran_on[-1] * _SPAN, MAX_GPUS)
        powers = {2**n for n in range(MAX_GPUS.bit_length()) if low <= 2**n <= high}
        widths = sorted(powers | set(ran_on) | {low})
        speeds = _curve(form, value, widths[-1]).speed_at(np.array(widths)).tolist()
    speed = dict(zip(widths, speeds, strict=True))
    sizes = [one.hours * speed[one.gpus] for one in group]
    mean = math.fsum(sizes) / len(sizes)
    hours = found.trace.window_hours
    old = found.classes[0]
    job_class = JobClass(
        name=name,
        phases=(
            Phase(
                size_gpu_hours=mean,
                speedups={group[0].gpu_type: Table(gpus=tuple(widths), speeds=tuple(speeds))},
            ),
        ),
        arrivals_per_hour=len(group) / hours if hours >= SHORTEST_WINDOW_HOURS else 1.0,
        startup_hours=old.startup_hours,
        rescale_hours=old.rescale_hours,
    )
    jobs = [
        TraceJob(one.job.id, one.job.arrived_at_seconds, name, size / mean)
        for one, size in zip(group, sizes, strict=True)
    ]
    return job_class, jobs


def _curve(form: str, value: float, widest: int) -> SpeedupCurve:
    if form == "amdahl":
        return Amdahl(parallel_fraction=value, max_gpus=widest)
    return PowerLaw(exponent=value, max_gpus=widest)


def _fit(name: str, group: Sequence[Ran]) -> ClassFit:
    logs = np.sort([math.log(one.hours) for one in group])
    middle = float(np.median(logs))
    return ClassFit(
        name=name,
        jobs=len(group),
        gpus=(min(one.gpus for one in group), max(one.gpus for one in group)),
        median_hours=math.exp(middle),
        spread_factor=math.exp(float(np.quantile(np.abs(logs - middle), 0.9))),
    )


def _explained(groups: Sequence[Sequence[float]]) -> float:
    """Return the fraction of the variance that groups explain; 1 where there is none."""
    everything = np.concatenate([np.asarray(group) for group in groups]) if groups else np.zeros(1)
    total = float(((everything - everything.mean()) ** 2).sum())
    inside = sum(float(((np.asarray(group) - np.mean(group)) ** 2).sum()) for group in groups)
    return 1.0 if total < 1e-12 else 1.0 - inside / total


def _notes(found: Workload, speedup: str) -> list[str]:
    """Return what was assumed."""
    kept = [note for note in found.notes if not note.startswith("speed-ups are not known")]
    if speedup == "rigid":
        return [
            "assumed: every job keeps a width at which jobs of its class ran, at a speed of one per GPU",
            *kept,
        ]
    return [
        f"assumed: all jobs scale as {speedup} (--speedup), on a quarter to four times the GPUs of a class",
        *kept,
    ]
