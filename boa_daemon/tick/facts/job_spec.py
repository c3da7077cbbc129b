"""What to run for a job: the order that an engine gets, and keeps as a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from boa_daemon.job.run_options import RunOptions, plain, stated
from policies.errors import InvalidProblem
from policies.model import JobId, check_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(RunOptions):
    """What to run for a job.

    `run` is a shell command, started in `workdir` once on every node of the job; `setup` runs before it. Both
    run as the options of the base class say. `code` is the digest of the job's code; `workdir` is then inside
    a copy of that code. `user` submitted the job.

    After an order to stop, the job has `stop_grace_seconds` to write its checkpoint. The newest `log_bytes`
    of its output are kept.

    With `gate` the job's DDP models ask the gate, if one runs, without a change to the script; the gate ranks
    by `weight`. An `is_rigid` job runs at one width, and its log says at each start how to change that.
    `record` is the job as it was submitted, in JSON; engines only keep it. `slurm_options` are options of
    `sbatch` for the job, which only the slurm engine reads.
    """

    job: JobId
    name: str
    class_name: str
    run: str
    workdir: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_grace_seconds: float = 60.0
    log_bytes: int = 64 * 2**20
    gate: bool = True
    weight: float = 1.0
    is_rigid: bool = False
    code: str = ""
    setup: str = ""
    user: str = ""
    record: str = ""
    slurm_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.job or not self.run.strip():
            raise InvalidProblem(f"job {self.job or self.name!r} needs an id and a command to run")
        check_positive(f"stop_grace_seconds of {self.job}", self.stop_grace_seconds)
        check_positive(f"log_bytes of {self.job}", self.log_bytes)

    @classmethod
    def of(cls, content: Mapping[str, Any], **others: Any) -> JobSpec:
        """Return the specification of a job from the content of its file; `others` are its other fields.

        Raises:
            InvalidProblem: when there is nothing to run.
        """
        said = {key: value for key, value in content.items() if key not in others}
        return cls(**stated(cls, said), **others)

    def to_document(self) -> dict[str, Any]:
        """Return the fields, as an engine writes them into its file."""
        return {each.name: plain(getattr(self, each.name)) for each in fields(self)}
