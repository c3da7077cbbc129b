"""The job file: what to run, its class, the allowed widths and its budget in dollars."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import Field as OptionField
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import Field, create_model, field_validator
from pydantic_core import PydanticCustomError

from boa_daemon.errors import did_you_mean
from boa_daemon.inputs.document_file import Document, KeyPath
from boa_daemon.inputs.groups import MOST_MEMBERS, size_of
from boa_daemon.inputs.schema import (
    FORMS,
    NAME_FORM,
    Gpus,
    Name,
    NotNegative,
    Positive,
    Strict,
    a_kind,
    checked,
)
from boa_daemon.inputs.yaml_events import typed_in_yaml
from boa_daemon.job.run_options import IMAGE_FORM, RunOptions, default_of
from boa_daemon.job.secrets import REFERENCE
from boa_daemon.slurm.options import kept_options
from boa_daemon.tick.facts.retries import DEFAULT_RETRIES, FailureCause
from boa_daemon.units import SECONDS_PER_HOUR

MAX_TEXT = 65_536
MOST_STRING_BYTES = 131_072
"""Longest text that Linux hands to a program (MAX_ARG_STRLEN), with a variable's name and the final null."""
MOST_TOTAL_BYTES = 2**20
"""Half of what Linux hands to a program in all; the rest is for the daemon's variables and the node's."""
MOST_NAME_BYTES = 255
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
"""Variables that the daemon sets to keep jobs and their GPUs apart; a job file must not set them."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
AFTER_FORM = r"^[A-Za-z0-9-]{1,80}(:end)?$"
"""The id of a job or a group; `:end` accepts any end, failures too."""
REVISION_FORM, DIGEST_FORM = r"^[^-\s]\S*$", r"^[0-9a-f]{64}$"
_SOURCE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\s*?\[\]]{0,900})?")
MOST_RETRIES = 100
LARGE = 1e300
FORMS[IMAGE_FORM] = "an image such as ghcr.io/acme/train:1.4, or the path of a .sif file"
FORMS[AFTER_FORM] = "the id of a job or a group, with :end where any end of it will do"
FORMS[REVISION_FORM] = "a branch, a tag or a commit"
FORMS[DIGEST_FORM] = "64 hexadecimal digits"
Event = Literal["start", "end", "failure", "move", "waiting"]
"""Events of which a job's user can be notified."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Metadata of a key whose value everybody may see, and not only the job's user."""


_Value = TypeVar("_Value")
Public = Annotated[_Value, Shown()]


class CodeRef(Strict):
    """Code that is copied to the nodes: a folder, or a revision of the git repository there.

    `digest` is the digest of its packed content.
    """

    folder: str = Field(default=".", max_length=4096, description="folder with the code")
    revision: str | None = Field(
        default=None, min_length=1, max_length=200, pattern=REVISION_FORM, description="revision of git"
    )
    digest: str | None = Field(
        default=None, pattern=DIGEST_FORM, description="SHA-256 of the packed code, filled in by BOA"
    )


class _JobFile(Strict):
    """The keys of a job file except the options of its run, and `class`, which is no valid name in Python."""

    name: Public[str] = Field(min_length=1, max_length=100, pattern=NAME_FORM, description="text")
    run: str = Field(
        min_length=1, max_length=MAX_TEXT, description="shell command, started once on every node of the job"
    )
    workdir: str = Field(default=".", max_length=4096, description="folder that the command starts in")
    min_gpus: Public[Gpus | None] = Field(default=None, description="the narrowest width allowed, GPUs")
    max_gpus: Public[Gpus | None] = Field(default=None, description="the widest width allowed, GPUs")
    batch: Public[int | None] = Field(
        default=None, ge=1, description="samples of a step on all GPUs; only widths that divide it are used"
    )
    max_usd: Public[Positive | None] = Field(
        default=None, description="dollars after which the job is stopped; of a group, all its jobs together"
    )
    weight: Public[Positive] = Field(default=1.0, description="worth of an hour of the job's time, default 1")
    scale: Public[Positive] = Field(default=1.0, description="factor on the sizes of the class, default 1")
    environment: dict[Name, str] = Field(default_factory=dict, description="variables for the command")
    team: Public[Name | None] = Field(
        default=None, description="team that pays; default: the team of its user"
    )
    tags: dict[Name, Name] = Field(
        default_factory=dict,
        max_length=50,
        description="tags of the job in boa cost --by tag:KEY; they come before those of its team and its "
        "nodes",
    )
    stop_grace_seconds: Public[Positive] = Field(
        default=60.0, description="seconds at a stop for the checkpoint and for what the script does after it"
    )
    retries: Public[int | dict[FailureCause, int]] = Field(
        default=DEFAULT_RETRIES,
        description="failures without a newer checkpoint, after which the job is not tried again; "
        "or a number for each kind of failure",
    )
    matrix: dict[Name, list[str | int | float | bool]] | None = Field(
        default=None, description="lists of values by variable: one job for each combination"
    )
    count: Public[int | None] = Field(
        default=None, ge=1, le=MOST_MEMBERS, description="jobs, or jobs for each combination of matrix"
    )
    notify: list[Event] | None = Field(
        default=None, description="events that its user is told of; default: those of [users]"
    )
    gate: Public[bool] = Field(
        default=True, description="have DDP models ask the daemon's gate before they send, if it runs one"
    )
    max_hours: Public[Positive | None] = Field(
        default=None, description="hours on GPUs, over all starts, after which the job is stopped"
    )
    first_report_hours: Public[Positive | None] = Field(
        default=None,
        description="hours after a start within which the job reports a step, or it has failed; default for "
        "a job known to be elastic: 2 hours without a step and a printed line",
    )
    not_before: Public[str | None] = Field(
        default=None,
        max_length=40,
        description="instant before which it is not started, ISO 8601 with zone",
    )
    after: Public[list[Annotated[str, Field(pattern=AFTER_FORM)]]] = Field(
        default_factory=list,
        max_length=1000,
        description="ids of jobs or groups that must succeed first; ID:end waits for any end",
    )
    elastic: Public[bool | None] = Field(
        default=None,
        description="whether the job resumes at any width; default: yes once it has reported a step",
    )
    deadline_hours: Public[NotNegative | None] = Field(
        default=None, description="hours from its submission to its deadline; 0 for none"
    )
    deadline: Public[str | None] = Field(
        default=None, max_length=40, description="deadline, an instant in ISO 8601 with zone"
    )
    code: CodeRef | None = Field(
        default=None, description="folder, or {folder, revision} of git, copied to the nodes"
    )
    setup: str | None = Field(
        default=None, max_length=MAX_TEXT, description="shell commands before the first start on a node"
    )

    slurm_options: list[Name] = Field(
        default_factory=list,
        max_length=100,
        description="options of sbatch for the slurm engine, such as --qos=high, as a list or a text",
    )

    @field_validator("slurm_options", mode="before")
    @classmethod
    def _slurm_options(cls, value: object) -> object:
        """Split a text into words; refuse options that a job may not choose."""
        try:
            words = shlex.split(value) if isinstance(value, str) else value
            if isinstance(words, list) and all(isinstance(word, str) for word in words):
                return kept_options(words)
        except ValueError as error:
            _refuse(str(error).removeprefix("slurm_options: "), "")
        return value

    @field_validator("code", mode="before")
    @classmethod
    def _code(cls, value: object) -> object:
        """Convert a text to a folder."""
        return {"folder": value} if isinstance(value, str) else value

    @field_validator("data", mode="before", check_fields=False)
    @classmethod
    def _data(cls, value: object) -> object:
        """Convert a text to a single source; refuse invalid names and addresses."""
        sources = {"": value} if isinstance(value, str) else value
        # A single source has the name "".
        is_one = isinstance(sources, Mapping) and list(sources) == [""]
        for name, source in sources.items() if isinstance(sources, Mapping) else ():
            if not is_one and not (isinstance(name, str) and _SOURCE_NAME.fullmatch(name)):
                _refuse(f"has {name!r}, which is no name of a folder", "Letters, digits, - _ and .")
            is_text = isinstance(source, str) and source and "\0" not in source
            if not is_text or ("://" in str(source) and not _S3.fullmatch(str(source))):
                _refuse(f"must be s3://BUCKET/PREFIX or a folder; got {a_kind(source)}", "")
        return sources

    @field_validator("retries", mode="before")
    @classmethod
    def _retries(cls, value: object) -> object:
        """Refuse an invalid number of retries in one sentence."""
        by_kind = value if isinstance(value, Mapping) else {"": value}
        for kind, number in by_kind.items():
            of = f"of {kind!r} " if isinstance(value, Mapping) else ""
            if of and kind not in get_args(FailureCause):
                hint = did_you_mean(str(kind), get_args(FailureCause))
                _refuse(f"has no kind of failure {kind!r}", hint)
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MOST_RETRIES:
                said = f"{of}must be a whole number from 0 to {MOST_RETRIES}; got {a_kind(number)}"
                _refuse(said, "" if of else "Or a mapping such as {error: 0, signal: 5}")
        return value

    @field_validator("matrix", mode="before")
    @classmethod
    def _matrix(cls, value: object) -> object:
        """Refuse anything but a mapping of names to lists of values, in one sentence."""
        if value is None:
            return value
        if not isinstance(value, Mapping) or not value:
            _refuse(
                f"must be a mapping of variables to lists; got {a_kind(value)}", "Write {LR: [0.1, 0.01]}"
            )
            return value
        for name, choices in value.items():
            if not isinstance(choices, list) or not choices:
                _refuse(f"of {name} must be a list of values; got {a_kind(choices)}", "")
                continue
            for choice in choices:
                is_text = isinstance(choice, str) and "\0" not in choice
                is_number = isinstance(choice, int | float) and -LARGE <= choice <= LARGE
                if not is_text and not is_number:
                    _refuse(f"of {name} holds {a_kind(choice)}, which is no text and no number", "")
        return value


def _refuse(said: str, hint: str) -> None:
    """Refuse a value; the message begins with its path.

    Raises:
        PydanticCustomError: always.
    """
    raise PydanticCustomError("one_too_many", "refused", {"said": said, "hint": hint})


_FORMS: Mapping[str, Any] = {
    "str": str, "int": int, "float": Positive, "bool": bool,
    "Sequence[str]": list[Name], "Mapping[str, str]": dict[Name, str],
    # A single source has no name.
    "data": dict[str, str],
}  # fmt: skip
"""The form in a file of an option, by its name or its type."""


def _key_of(option: OptionField[Any]) -> tuple[Any, Any]:
    """Return the key of a job file for an option of a run, as pydantic wants it."""
    form = _FORMS.get(option.name) or _FORMS[str(option.type)]
    default = None if option.metadata["may_be_unset"] else default_of(option)
    form = form | None if option.metadata["may_be_unset"] else form
    default = list(default) if isinstance(default, tuple) else default
    given = {"default_factory": type(default)} if isinstance(default, list | dict) else {"default": default}
    field = Field(**given, **option.metadata["rules"], description=option.metadata["said"])
    return (Annotated[form, Shown()] if option.metadata["is_public"] else form), field


_KEYS: dict[str, Any] = {each.name: _key_of(each) for each in fields(RunOptions)}
_KEYS["class"] = (
    Public[str],
    Field(min_length=1, max_length=100, description="class of the job, whose speed-up curve applies"),
)
JobFile: type[_JobFile] = create_model("JobFile", __base__=_JobFile, __doc__="A job file.", **_KEYS)
PUBLIC_KEYS = frozenset(name for name, key in JobFile.model_fields.items() if Shown() in key.metadata)
"""Keys whose values everybody may see: numbers, dates, and ids of jobs. A new key is its user's alone."""


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
    _check_sizes(document, values)
    for number, pattern in enumerate(values["artifacts"]):
        if pattern.startswith("/") or ".." in pattern.split("/") or "\0" in pattern:
            said = f"artifacts must be below workdir; got {pattern!r}"
            raise document.error(said, at=("artifacts", number), hint="For example out/**/*.json")
    if values["code"] and (Path(values["workdir"]).is_absolute() or ".." in Path(values["workdir"]).parts):
        said = f"workdir must be within the code; got {values['workdir']!r}"
        raise document.error(said, at=("workdir",), hint="Leave it out for the top of the code")
    for name in values["matrix"] or {}:
        _check_variable(document, name, of="matrix")
    if values["matrix"]:
        values["matrix"] = _as_typed(values["matrix"], document)
    if size_of(values) > MOST_MEMBERS:
        said = f"matrix and count make {size_of(values):,} jobs; a group has {MOST_MEMBERS:,} at the most"
        raise document.error(said, at=("matrix",) if values["matrix"] else ("count",))
    for name, reference in values["secrets"].items():
        _check_variable(document, name, of="secrets")
        if name in values["environment"]:
            raise document.error(f"secrets: {name} is in environment as well", at=("secrets", name))
        if not REFERENCE.fullmatch(reference):
            # The value may be the secret itself, so the message does not show it.
            hint = "Write env:NAME, ssm:/PATH or secretsmanager:ARN; a value does not belong here"
            raise document.error(f"secrets: {name} is not a reference", at=("secrets", name), hint=hint)
    least, most = values["min_gpus"], values["max_gpus"]
    if least is not None and most is not None and least > most:
        raise document.error(f"min_gpus {least} is more than max_gpus {most}", at=("min_gpus",))
    if values["deadline"] is not None and values["deadline_hours"]:
        said = "deadline and deadline_hours are both given"
        raise document.error(said, at=("deadline",), hint="Leave one of them out")
    for key in ("not_before", "deadline"):
        if values[key] is None:
            continue
        try:
            instant_of(values[key])
        except ValueError:
            said = f"{key} must be an instant with its zone; got {values[key]!r}"
            raise document.error(said, at=(key,), hint="Write 2030-01-31T08:00:00Z") from None
    return values


def _as_typed(matrix: Mapping[str, list[Any]], document: Document) -> dict[str, list[Any]]:
    """Return the values of a matrix, with numbers as the text that was typed where reading would change it.

    Jobs get the values as variables: ``3.10`` must not become 3.1 there, nor ``1e3`` 1000.0.
    """
    typed = typed_in_yaml(document.text) if document.language in ("yaml", "json") else {}

    def one(name: str, place: int, value: Any) -> Any:
        text = typed.get(("matrix", name, str(place)))
        if text is None or isinstance(value, str | bool) or json.dumps(value) == text:
            return value
        return text

    return {name: [one(name, place, each) for place, each in enumerate(row)] for name, row in matrix.items()}


def _check_sizes(document: Document, values: Mapping[str, Any]) -> None:
    """Refuse values that Linux cannot hand to a program, or cannot open as a file.

    Raises:
        InputError: for the first of them; on the node it would be found after the node was rented.
    """
    texts: list[tuple[KeyPath, str, str]] = [((key,), "", values[key] or "") for key in ("run", "setup")]
    texts += [(("environment", name), f"{name}=", value) for name, value in values["environment"].items()]
    for name, choices in (values["matrix"] or {}).items():
        texts += [(("matrix", name), f"{name}=", str(choice)) for choice in choices]
    total = 0
    for at, prefix, text in texts:
        label = " ".join(map(str, at))
        try:
            size = len((prefix + text).encode()) + 1
        except UnicodeEncodeError as error:
            said = (
                f"{label} holds {error.object[error.start]!r}, half of a character, which UTF-8 cannot write"
            )
            raise document.error(said, at=at, hint="Write the character itself") from None
        total += size
        if size > MOST_STRING_BYTES:
            raise document.error(
                f"{label} is {size:,} bytes long; Linux hands a program at most {MOST_STRING_BYTES:,} "
                "in one text",
                at=at,
                hint="Put it into a file of the code, and give the name of the file",
            )
    if total > MOST_TOTAL_BYTES:
        raise document.error(
            f"environment has {total:,} bytes together; Linux hands a program at most {MOST_TOTAL_BYTES:,}",
            at=("environment",),
            hint="Put the values into a file of the code",
        )
    for key in ("workdir", "result"):
        longest = max(values[key].split("/"), key=lambda part: len(part.encode(errors="replace")))
        if len(longest.encode(errors="replace")) > MOST_NAME_BYTES:
            said = f"{key} has a part of {len(longest.encode(errors='replace'))} bytes, {longest[:20]!r}...; "
            raise document.error(f"{said}a file's name has at most {MOST_NAME_BYTES}", at=(key,))


def _check_variable(document: Document, name: str, *, of: str = "environment") -> None:
    """Refuse an invalid variable name, or one that the daemon sets.

    Raises:
        InputError: when the name is one of those.
    """
    at = (of, name)
    if name in OWN_VARIABLES or name.startswith(OWN_PREFIXES):
        raise document.error(f"{of}: {name} is set by the daemon for each job", at=at)
    if not _VARIABLE.fullmatch(name):
        raise document.error(f"{of}: {name!r} is not a valid name of a variable", at=at)
    if of == "environment" and "\0" in document.content["environment"][name]:
        raise document.error(f"environment: the value of {name} holds a null character", at=at)


def instant_of(text: str | None) -> float:
    """Return an instant in ISO 8601 as seconds since the epoch; 0 for None.

    Raises:
        ValueError: when the text is not an instant, or has no zone.
    """
    if text is None:
        return 0.0
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("an instant without a zone")
    return found.timestamp()


def due_at(content: Mapping[str, Any], *, arrived_at: float) -> float | None:
    """Return the deadline of a job as an instant; None if its file has none."""
    if content.get("deadline") is not None:
        return instant_of(content["deadline"])
    hours = content.get("deadline_hours")
    return arrived_at + SECONDS_PER_HOUR * float(hours) if hours else None


def job_schema() -> dict[str, Any]:
    """Return the JSON schema of a job file, for editors."""
    schema: dict[str, Any] = JobFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
