"""What the daemon learns from jobs as they arrive, run and end: rows of samples for estimating classes.

A stretch of work at one width lies between two reports of a generation. Stretches of the same class and width
within an hour are added up, and arrivals are counted by the hour. Older rows are merged, so that years of
work stay small. Everything is in memory and read once; `save` writes what is new, one batch per tick. A job's
end is written with its record, and arrivals carry the number of the last counted job. So a crash counts
nothing twice, and loses at most the stretches since the last `save`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from boa_daemon.learning.samples import (
    DAY,
    HOUR,
    KEPT_SECONDS,
    MINUTE,
    Sample,
    SampleKind,
    SampleStore,
    compact_samples,
)
from boa_daemon.learning.speedups import CurveEstimate, SpeedSample, doubted, estimate_all
from boa_daemon.tick.facts.ports import RunReport
from policies.fast_dataclasses import replace
from policies.kinds import kind_of
from policies.model import JobClass, JobId, Width

STRETCH_SECONDS = 5.0
"""The shortest stretch of work that says enough about the speed."""
TOGETHER_SECONDS = 3600.0
COMPACT_SECONDS = 3600.0
HALVES_THE_ERROR = 4.0
"""Work measured at a width over that at its class's last estimate, before speeds are estimated again; a day
of work is enough, because speeds may change."""


@dataclass(slots=True)
class Worked:
    """How long the jobs of a class worked while measured; `widths` are seconds by GPU type and width."""

    seconds: float = 0.0
    gpu_seconds: float = 0.0
    widths: dict[tuple[str, int], float] = field(default_factory=dict)


class Learner:
    """Samples in memory, and in a store if given; every call happens under the lock of the tick."""

    def __init__(self, store: SampleStore | None = None) -> None:
        self._store = store
        self.reload()

    def reload(self) -> None:
        """Read everything from the store again; unsaved rows are lost."""
        found = None if self._store is None else self._store.read()
        self.rows: dict[str, Sample] = {} if found is None else {row.key: row for row in found.rows}
        self._of_class: dict[str, dict[str, Sample]] = {}
        self.arrived_through = 0 if found is None else found.arrived_through
        self._before: dict[JobId, RunReport] = {}
        self._open: dict[tuple[object, ...], str] = {}
        self._minutes: dict[str, tuple[int, int]] = {}
        self._changed: set[str] = set()
        self._gone: set[str] = set()
        self._saved_through = self.arrived_through
        self._compacted_at = float("-inf")
        self._speeds: dict[str, list[SpeedSample]] = {}
        self._of_speed: dict[str, dict[str, Sample]] = {}
        self._curves: dict[tuple[str, str], CurveEstimate] = {}
        self._curve_of: dict[str, dict[tuple[str, int], float]] = {}
        self._worked: dict[str, Worked] = {}
        for row in self.rows.values():
            self._file(row)
        self._found: Mapping[tuple[str, str], CurveEstimate] = {}
        self._news: set[str] = {row.class_name for row in self.rows.values() if row.kind == "speed"}
        self.events: Counter[str] = Counter()
        for row in self.rows.values():
            if row.kind == "speed":
                self._count_work(row)
            else:
                self.events[row.class_name] += round(row.count)
        self.has_news = any(row.kind == "speed" for row in self.rows.values())

    @property
    def samples(self) -> list[SpeedSample]:
        """The stretches of work, by class, the oldest of each first."""
        return [sample for name in self._of_speed for sample in self.samples_of(name)]

    def samples_of(self, class_name: str) -> list[SpeedSample]:
        """Return the stretches of work of a class, oldest first."""
        found = self._speeds.get(class_name)
        if found is None:
            rows = sorted(self._of_speed.get(class_name, {}).values(), key=lambda row: (row.at, row.key))
            found = self._speeds[class_name] = [
                SpeedSample(
                    class_name=row.class_name,
                    gpu_type=row.gpu_type,
                    gpus=row.gpus,
                    samples=row.total,
                    seconds=row.seconds,
                    at=row.at,
                    batch=row.batch,
                    gradient_noise=row.gradient_noise,
                )
                for row in rows
            ]
        return found

    def take(
        self, report: RunReport, *, class_name: str, width: Width, now: float, over_first_phase: float = 1.0
    ) -> None:
        """Record a report of a generation that runs or has just ended.

        `over_first_phase` is the stated speed of the class in the job's phase over that in its first phase.
        """
        if report.samples is None or report.seconds is None or report.step is None:
            return
        before = self._before.get(report.job)
        if before is None or before.generation != report.generation:
            self._before[report.job] = report
            return
        seconds = report.seconds - (before.seconds or 0.0)
        samples = report.samples - (before.samples or 0.0)
        steps = report.step - (before.step or 0)
        if seconds < STRETCH_SECONDS or samples <= 0.0:
            return
        self._before[report.job] = report
        self.worked(
            SpeedSample(
                class_name=class_name,
                gpu_type=width.gpu_type,
                gpus=width.gpus,
                samples=samples / over_first_phase,
                seconds=seconds,
                at=now,
                batch=samples / steps if steps > 0 else None,
                gradient_noise=report.gradient_noise,
            )
        )

    def worked(self, sample: SpeedSample) -> None:
        """Add a stretch to the open one of the same kind, if recent; markets make no difference."""
        if (gpu_type := str(kind_of(sample.gpu_type).on_demand)) != sample.gpu_type:
            sample = replace(sample, gpu_type=gpu_type)
        self.has_news = True
        self._count_work(sample)
        kind = _kind(sample)
        known = self.rows.get(self._open.get(kind, ""))
        if known is not None and sample.at - known.at < TOGETHER_SECONDS:
            row = _longer(known, sample)
        else:
            row = _row_of(sample)
            self._open[kind] = row.key
        self._keep(row)
        self._news.add(sample.class_name)

    def arrived(self, class_name: str, at: float) -> None:
        """Count an arrival; the first one of a class only starts the count."""
        self.events[class_name] += 1
        seen = f"seen|{class_name}"
        if seen not in self.rows:
            self._keep(Sample(key=seen, kind="seen", class_name=class_name, at=at))
            self._minutes[class_name] = (int(at // MINUTE), 1)
            return
        hour = int(at // HOUR)
        key = f"arrivals|{class_name}|{hour}"
        row = self.rows.get(key) or Sample(
            key=key, kind="arrivals", class_name=class_name, at=hour * HOUR, count=0.0
        )
        minute, number = self._minutes.get(class_name, (0, 0))
        number = number + 1 if minute == int(at // MINUTE) else 1
        self._minutes[class_name] = (int(at // MINUTE), number)
        # `moment` sums the squares of the counts per minute: add n^2 - (n - 1)^2.
        self._keep(replace(row, count=row.count + 1.0, moment=row.moment + 2.0 * number - 1.0))

    def take_arrivals(
        self,
        arrivals: Iterable[tuple[int, str, float]],
        *,
        is_left_out: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        """Count jobs given as (number, class, instant); jobs counted before are skipped.

        Jobs of classes that are left out are not counted.
        """
        for number, class_name, at in arrivals:
            if number > self.arrived_through:
                name = class_name.partition("[")[0]
                if not is_left_out(name):
                    self.arrived(name, at)
                self.arrived_through = number

    def ended(self, job: JobId, *, class_name: str, work_gpu_hours: float, at: float, is_whole: bool) -> None:
        """Record a job's work over its scale, as a size or as cut off; written at once."""
        self._before.pop(job, None)
        if work_gpu_hours <= 0.0:
            return
        self.events[class_name] += 1
        kind: SampleKind = "size" if is_whole else "cut"
        row = Sample(
            key=f"{kind}|{job}",
            kind=kind,
            class_name=class_name,
            at=at,
            total=work_gpu_hours,
            moment=math.log(work_gpu_hours) if is_whole else 0.0,
        )
        if self._store is not None:
            self._store.write([row])
        self.rows[row.key] = row
        self._file(row)

    def save(self, now: float, *, kept_seconds: float = KEPT_SECONDS) -> None:
        """Write what is new since the last save, and compact old rows once an hour.

        Raises:
            SQLAlchemyError: when writing fails; the next save tries again.
        """
        if now - self._compacted_at >= COMPACT_SECONDS:
            self._compact(now, kept_seconds)
        if self._store is not None and (
            self._gone or self._changed or self.arrived_through > self._saved_through
        ):
            self._store.write(
                [self.rows[key] for key in sorted(self._changed)],
                forget=sorted(self._gone),
                arrived_through=self.arrived_through,
            )
        self._gone.clear()
        self._changed.clear()
        self._saved_through = self.arrived_through

    def _compact(self, now: float, kept_seconds: float) -> None:
        self._compacted_at = now
        merged, gone = compact_samples(self.rows, now=now, kept_seconds=kept_seconds)
        for key in gone:
            row = self.rows.pop(key)
            filed = self._of_speed if row.kind == "speed" else self._of_class
            filed.get(row.class_name, {}).pop(key, None)
            if row.kind == "speed":
                self._speeds.pop(row.class_name, None)
        self._gone.update(gone)
        self._changed.difference_update(gone)
        for row in merged:
            self._keep(row)

    def curves(self, stated: Iterable[JobClass], *, now: float) -> Mapping[tuple[str, str], CurveEstimate]:
        """Return the estimate for each measured class and GPU type."""
        self.has_news = False
        moved = False
        for job_class in stated:
            if job_class.name in self._news and self._is_told_more(job_class.name):
                moved = True
                self._curves |= estimate_all(self.samples_of(job_class.name), [job_class], now=now)
        self._news.clear()
        if moved:
            self._found = doubted(self._curves)
        return self._found

    def _is_told_more(self, class_name: str) -> bool:
        """Return whether a class worked at a new width, or long enough at one, since its last estimate."""
        widths, before = self._worked[class_name].widths, self._curve_of.get(class_name, {})
        if all(
            seconds < min(HALVES_THE_ERROR * known, known + DAY)
            for width, seconds in widths.items()
            for known in (before.get(width, 0.0),)
        ):
            return False
        self._curve_of[class_name] = widths.copy()
        return True

    def worked_of(self, class_name: str) -> Worked:
        """Return how long the jobs of a class have worked while measured."""
        return self._worked.get(class_name) or Worked()

    def _count_work(self, stretch: SpeedSample | Sample) -> None:
        """Count the time that a class has worked, and the widths at which it has."""
        worked = self._worked.setdefault(stretch.class_name, Worked())
        worked.seconds += stretch.seconds
        worked.gpu_seconds += stretch.seconds * stretch.gpus
        width = stretch.gpu_type, stretch.gpus
        worked.widths[width] = worked.widths.get(width, 0.0) + stretch.seconds

    def _keep(self, row: Sample) -> None:
        """Store a row, to be written by the next save."""
        self.rows[row.key] = row
        self._file(row)
        self._changed.add(row.key)

    def _file(self, row: Sample) -> None:
        """Index a row by its class."""
        if row.kind == "speed":
            self._of_speed.setdefault(row.class_name, {})[row.key] = row
            self._speeds.pop(row.class_name, None)
        else:
            self._of_class.setdefault(row.class_name, {})[row.key] = row

    @property
    def seen(self) -> Collection[str]:
        """The classes that jobs have arrived for."""
        return self._of_class.keys()

    def rows_of(self, class_name: str) -> Collection[Sample]:
        """Return a class's rows on arrivals and sizes."""
        return self._of_class.get(class_name, {}).values()


def _kind(sample: SpeedSample) -> tuple[object, ...]:
    """Return what two stretches must share to be added up; with known noise also the rough batch size."""
    batch = None
    if sample.gradient_noise is not None and sample.batch:
        batch = round(math.log2(sample.batch))
    return sample.class_name, sample.gpu_type, sample.gpus, batch


def _longer(row: Sample, sample: SpeedSample) -> Sample:
    """Return a row with one more stretch of its kind; it keeps its beginning."""
    seconds = row.seconds + sample.seconds

    def mean(old: float | None, new: float | None) -> float | None:
        return None if old is None or new is None else (old * row.seconds + new * sample.seconds) / seconds

    return replace(
        row,
        total=row.total + sample.samples,
        seconds=seconds,
        count=1.0,
        batch=mean(row.batch, sample.batch),
        gradient_noise=mean(row.gradient_noise, sample.gradient_noise),
    )


def _row_of(sample: SpeedSample) -> Sample:
    """Return a stretch as a row of its own."""
    name = "|".join(map(str, _kind(sample)))
    return Sample(
        key=f"speed|{name}|{sample.at!r}",
        kind="speed",
        class_name=sample.class_name,
        gpu_type=sample.gpu_type,
        gpus=sample.gpus,
        at=sample.at,
        total=sample.samples,
        seconds=sample.seconds,
        batch=sample.batch,
        gradient_noise=sample.gradient_noise,
    )
