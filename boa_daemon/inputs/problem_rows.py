"""The keys of a problem file, their types and their descriptions."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from boa_daemon.errors import did_you_mean
from boa_daemon.inputs.gpu_file import GpuRow
from boa_daemon.inputs.resource_needs import NeedsRow
from boa_daemon.inputs.schema import Fraction, Gpus, Name, NotNegative, Positive, Strict


class BudgetRow(Strict):
    """A budget, in one unit."""

    usd_per_hour: Positive | None = Field(default=None, description="dollars per hour")
    gpus: Positive | None = Field(default=None, description="GPUs held, on average over time")


class PhaseRow(Strict):
    """A phase of work, with its speed-ups."""

    size_gpu_hours: Positive | None = Field(
        default=None, description="hours on one GPU of the reference type"
    )
    speedup: object = Field(
        default=None, description="table, amdahl, power or usl, or one of them for each GPU type"
    )
    steps: Positive | None = Field(default=None, description="steps of training, in place of size_gpu_hours")
    samples: Positive | None = Field(default=None, description="samples to train on, in place of steps")
    tokens: Positive | None = Field(default=None, description="tokens to train on, in place of steps")
    epochs: Positive | None = Field(default=None, description="epochs of training, in place of steps")
    step_seconds: object = Field(default=None, description="seconds of a step by width, for each GPU type")
    steps_per_second: object = Field(default=None, description="steps per second by width, for each GPU type")
    samples_per_second: object = Field(default=None, description="samples per second, in the same way")
    tokens_per_second: object = Field(default=None, description="tokens per second, in the same way")
    epoch_seconds: object = Field(default=None, description="seconds of an epoch, in the same way")
    extrapolate_to: Gpus | None = Field(
        default=None, description="the widest width to offer beyond the measured ones, GPUs"
    )

    @classmethod
    def _hint(cls, key: object) -> str:
        """Return a hint for an unknown key; any key that begins with `size` means `size_gpu_hours`."""
        if str(key).startswith("size"):
            unit = cls.model_fields["size_gpu_hours"].description or ""
            return did_you_mean(str(key), ["size_gpu_hours"], meanings={"size_gpu_hours": unit})
        return super()._hint(key)


class NetworkRow(Strict):
    """Traffic and computation of an iteration."""

    message_bytes: Positive = Field(description="bytes that one iteration all-reduces")
    compute_seconds: Positive = Field(description="seconds of forward and backward per iteration")


class ClassRow(Strict):
    """A class of jobs."""

    name: Name = Field(description="text")
    arrivals_per_hour: Positive | None = Field(default=None, description="jobs per hour")
    weight: Positive = Field(default=1.0, description="worth of an hour of a job's time, default 1")
    startup_hours: NotNegative = Field(default=0.0, description="hours before the first phase")
    rescale_hours: NotNegative = Field(default=0.0, description="hours at each change of type or width")
    min_gpus: Gpus | None = Field(default=None, description="the narrowest width allowed, GPUs")
    max_gpus: Gpus | None = Field(default=None, description="the widest width allowed, GPUs")
    spread: Fraction | None = Field(
        default=None,
        description="fraction by which a job's hours may differ, up or down, in nine of ten cases",
    )
    network: NetworkRow | None = Field(default=None, description="what an iteration sends between nodes")
    needs: NeedsRow | None = Field(
        default=None, description="cores, memory and disk that each of its GPUs needs"
    )
    shares_gpu: bool = Field(
        default=False,
        description="whether other jobs may share its GPUs, on machines with places for them",
    )
    phases: list[PhaseRow] = Field(min_length=1, description="phases of work, in order")


class FileRow(Strict):
    """The whole file."""

    budget: BudgetRow | None = Field(default=None, description="usd_per_hour or gpus, a time average")
    gpu_types: dict[Name, GpuRow | None] | None = Field(default=None, description="prices by GPU type")
    classes: list[ClassRow] = Field(min_length=1, description="classes of jobs")


def problem_schema() -> dict[str, Any]:
    """Return the JSON schema of a problem file and of a class file, for editors."""
    return FileRow.model_json_schema()
