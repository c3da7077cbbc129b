"""The job file: what to run, as which class, within which widths and for how many dollars."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, create_model

from boa_daemon.inputs.schema import NAME_FORM, Gpus, Name, NotNegative, Positive, Strict, checked
from boa_daemon.inputs.yaml_file import Document
from boa_daemon.job.secrets import REFERENCE

MAX_TEXT = 65_536
OWN_PREFIXES = ("BOA_", "PET_RDZV_", "NVIDIA_VISIBLE_", "TORCHELASTIC_", "RAY_")
OWN_VARIABLES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY", "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR",
        "PET_LOCAL_ADDR", "PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MAX_RESTARTS",
        "PET_SHUTDOWN_TIMEOUT", "PET_TEE", "PET_LOG_DIR", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
        "MASTER_ADDR", "MASTER_PORT",
    }
)  # fmt: skip
"""What the daemon tells a job, by which jobs and their GPUs are told apart: no job file sets these."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
AFTER_FORM = r"^[A-Za-z0-9-]{1,80}(:end)?$"
"""The id of a job, and whether any end of it will do."""


class _JobFile(Strict):
    """What a job file may hold, but for `class`, which Python does not allow as a name."""

    name: str = Field(min_length=1, max_length=100, pattern=NAME_FORM, description="text")
    run: str = Field(
        min_length=1, max_length=MAX_TEXT, description="shell command, started once on every node of the job"
    )
    workdir: str = Field(default=".", max_length=4096, description="folder that the command starts in")
    min_gpus: Gpus | None = Field(default=None, description="the narrowest width allowed, GPUs")
    max_gpus: Gpus | None = Field(default=None, description="the widest width allowed, GPUs")
    max_usd: Positive | None = Field(default=None, description="dollars after which the job is stopped")
    weight: Positive = Field(default=1.0, description="worth of an hour of the job's time, default 1")
    scale: Positive = Field(default=1.0, description="factor on the sizes of the class, default 1")
    environment: dict[Name, str] = Field(default_factory=dict, description="variables for the command")
    team: Name | None = Field(default=None, description="team that pays; left out: the one of its user")
    secrets: dict[Name, str] = Field(
        default_factory=dict,
        description="variables whose values are not in this file: env:NAME of the daemon's secret store, "
        "ssm:/PATH or secretsmanager:ARN",
    )
    stop_grace_seconds: Positive = Field(default=60.0, description="seconds to write a checkpoint in")
    result: str = Field(default="", max_length=4096, description="file that must be there at the end")
    retries: int = Field(
        default=3,
        ge=0,
        le=100,
        description="failures without a newer checkpoint, after which it is not tried again",
    )
    gate: bool = Field(
        default=True, description="have DDP models ask the daemon's gate before they send, if it runs one"
    )
    keep_checkpoints: int = Field(default=2, ge=1, le=100, description="checkpoints kept, the newest")
    max_hours: Positive | None = Field(
        default=None, description="hours on GPUs, over all starts, after which the job is stopped"
    )
    first_report_hours: Positive | None = Field(
        default=None,
        description="hours after a start within which it reports a step; one that does not has failed",
    )
    not_before: str | None = Field(
        default=None, max_length=40, description="instant before which it is not started, ISO 8601 with zone"
    )
    after: list[Annotated[str, Field(pattern=AFTER_FORM)]] = Field(
        default_factory=list,
        max_length=1000,
        description="ids of jobs that end well first; ID:end waits for any end",
    )
    elastic: bool | None = Field(
        default=None,
        description="whether it saves and resumes at any width; left out: once it has reported a step",
    )
    deadline_hours: NotNegative | None = Field(default=None, description="hours; kept for information")


_CLASS: dict[str, Any] = {
    "class": (str, Field(min_length=1, max_length=100, description="whose speed-up curve applies"))
}
JobFile: type[_JobFile] = create_model("JobFile", __base__=_JobFile, __doc__="A job file.", **_CLASS)


def check_job(document: Document) -> Mapping[str, Any]:
    """Return the content of a job file with its defaults filled in.

    Raises:
        InputError: for the first fault, with the key, the file and the line.
    """
    if not isinstance(document.content, Mapping):
        raise document.error("a job file is a mapping with the keys name, class and run")
    model = checked(JobFile, document.content, document=document)
    values: dict[str, Any] = model.model_dump()
    for name in values["environment"]:
        _check_variable(document, name)
    for name, reference in values["secrets"].items():
        _check_variable(document, name, key="secrets")
        if name in values["environment"]:
            raise document.error(f"secrets: {name} is in environment as well", at=("secrets", name))
        if not REFERENCE.fullmatch(reference):
            # What stands there may be the secret itself, so it is not said.
            hint = "Write env:NAME, ssm:/PATH or secretsmanager:ARN; a value does not belong here"
            raise document.error(f"secrets: {name} is no reference", at=("secrets", name), hint=hint)
    least, most = values["min_gpus"], values["max_gpus"]
    if least is not None and most is not None and least > most:
        raise document.error(f"min_gpus {least} is more than max_gpus {most}", at=("min_gpus",))
    if values["not_before"] is not None:
        try:
            instant_of(values["not_before"])
        except ValueError:
            said = f"not_before must be an instant with its zone; got {values['not_before']!r}"
            raise document.error(said, at=("not_before",), hint="Write 2030-01-31T08:00:00Z") from None
    return values


def _check_variable(document: Document, name: str, key: str = "environment") -> None:
    """Refuse a variable that is none, or that the daemon sets.

    Raises:
        InputError: when it is one of those.
    """
    at = (key, name)
    if name in OWN_VARIABLES or name.startswith(OWN_PREFIXES):
        raise document.error(f"{key}: {name} is set by the daemon for each job", at=at)
    if not _VARIABLE.fullmatch(name):
        raise document.error(f"{key}: {name!r} is no name of a variable", at=at)
    if "\0" in document.content[key][name]:
        raise document.error(f"{key}: the value of {name} holds a null character", at=at)


def instant_of(text: str | None) -> float:
    """Return an instant in ISO 8601 as seconds since the epoch; 0 where there is none.

    Raises:
        ValueError: when it is no instant, or says no zone.
    """
    if text is None:
        return 0.0
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("an instant without a zone")
    return found.timestamp()


def job_schema() -> dict[str, Any]:
    """Return the JSON schema of a job file, for editors."""
    schema: dict[str, Any] = JobFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
