"""What the daemon learns while jobs run: reports become samples, samples the speed-ups that it plans by.

From one report of a generation to the next is a stretch of work at one width. Stretches of the same class and
width within an hour are added up, so that a year of work stays a small file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from boa_daemon.estimate import CurveEstimate, SpeedSample, estimate_all
from boa_daemon.job.unit import read_json, write_json
from boa_daemon.ports import RunReport
from policies.errors import InvalidProblem
from policies.model import JobClass, JobId, Width

STRETCH_SECONDS = 5.0
"""A shorter stretch of work says little about the speed."""
TOGETHER_SECONDS = 3600.0


class Learner:
    """Keeps samples, in memory and in a file where it has one."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._before: dict[JobId, RunReport] = {}
        self.has_news = False
        self.samples: list[SpeedSample] = []
        if file is not None and (document := read_json(file)) is not None:
            try:
                self.samples = [SpeedSample(**row) for row in document["samples"]]
            except (KeyError, TypeError, InvalidProblem):
                self.samples = []  # What was learnt can be learnt again; a damaged file is no reason to stop.
            self.has_news = bool(self.samples)

    def take(self, report: RunReport, *, class_name: str, width: Width, now: float) -> None:
        """Take in a report of a generation that runs or has just ended."""
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
        self._add(
            SpeedSample(
                class_name=class_name,
                gpu_type=width.gpu_type,
                gpus=width.gpus,
                samples=samples,
                seconds=seconds,
                at=now,
                batch=samples / steps if steps > 0 else None,
                gradient_noise=report.gradient_noise,
            )
        )

    def _add(self, sample: SpeedSample) -> None:
        """Add a stretch to the one before it, where they belong together."""
        self.has_news = True
        for at, other in enumerate(self.samples):
            if _kind(other) == _kind(sample) and sample.at - other.at < TOGETHER_SECONDS:
                self.samples[at] = replace(
                    other, samples=other.samples + sample.samples, seconds=other.seconds + sample.seconds
                )
                return
        self.samples.append(sample)

    def curves(self, stated: Iterable[JobClass], *, now: float) -> Mapping[tuple[str, str], CurveEstimate]:
        """Return what is believed of each class and GPU type that was measured, and write the samples down.

        Raises:
            OSError: when they cannot be written.
        """
        self.has_news = False
        if self._file is not None:
            write_json(self._file, {"samples": [asdict(sample) for sample in self.samples]})
        return estimate_all(self.samples, stated, now=now)


def _kind(sample: SpeedSample) -> tuple[object, ...]:
    """Return what two stretches must share to be added up."""
    batch = None if sample.gradient_noise is None else sample.batch
    return sample.class_name, sample.gpu_type, sample.gpus, batch, sample.gradient_noise
