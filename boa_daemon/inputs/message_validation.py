"""Validate messages from machines: unit statuses, events, files of nodes and answers of clouds.

Anybody on a node can write to the queue, to a progress file or to a tag. So every message is validated
against a schema; an invalid one is counted, logged once per kind and dropped, never raised. An invalid
optional part (the progress, a checkpoint, an exception) is dropped alone, so that the news that a job has
ended still arrives.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, field_validator

from boa_daemon.job.seal import TOLD, is_sealed

_LOG = logging.getLogger("boa.messages")
MOST_BYTES = 1_000_000
"""Most characters of a message or a node's file: SQS takes 256 KiB, SSM returns 24,000 characters."""
MOST_RANKS, MOST_STEPS, MOST_LINES = 100_000, 2**53, 1000
LATEST_EVENT = 32_503_680_000.0
"""The year 3000: a later instant is an error, and other programs cannot represent it."""

Count = Annotated[int, Field(ge=0, le=MOST_STEPS)]
Text = Annotated[str, Field(max_length=100_000)]
Identifier = Annotated[str, Field(min_length=1, max_length=256)]


class DroppedMessages:
    """Counts dropped messages by source, and logs the first of each kind."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._logged: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def note(self, source: str, why: str) -> None:
        """Count a dropped message, and log the reason once."""
        kind = (source, why.partition(":")[0])
        with self._lock:
            self._counts[source] += 1
            is_new = kind not in self._logged and len(self._logged) < MOST_LINES
            self._logged.add(kind) if is_new else None
        if is_new:
            _LOG.warning("a message was dropped: %s: %s", source, why[:300], extra={"source": source})

    def counts(self) -> Mapping[str, int]:
        """Return the number of dropped messages by source since the start."""
        with self._lock:
            return dict(self._counts)


DROPPED_MESSAGES = DroppedMessages()
"""The counts of this process; messages arrive in several threads and packages."""


class _Word(BaseModel):
    """A part of a message: known keys have strict types, unknown keys are kept."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Exit(_Word):
    """How a unit ended."""

    code: Annotated[int, Field(ge=-1000, le=1000)] | None
    stop_asked: bool
    killed: bool
    out_of_memory: bool
    memory_gb: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0
    lingering: Count = 0
    why_lost: Annotated[str, Field(max_length=1000)] = ""
    is_done: bool
    lacks_result: bool
    agent_lost: bool = False
    never_kept: Annotated[str, Field(max_length=1000)] = ""
    ended_at: Annotated[float, Field(allow_inf_nan=False)] | None = None


class _Progress(_Word):
    """The progress that a job reports."""

    generation: Count
    step: Count | None = None
    samples: float | None = None
    seconds: float | None = None
    loss: float | None = None
    gradient_noise: float | None = None
    at: float | None = None
    save_seconds: float | None = None
    gap_seconds: float | None = None
    checkpoint_bytes: Count | None = None
    gpu_use: Annotated[float, Field(ge=0.0, le=1.0)] | None = None

    @field_validator("samples", "seconds", "loss", "gradient_noise", "at", "save_seconds", "gap_seconds")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        """Return a finite number; infinite or NaN values become None."""
        return value if value is not None and abs(value) <= 1e300 else None

    @field_validator("samples", "seconds", "save_seconds", "gap_seconds")
    @classmethod
    def _not_negative(cls, value: float | None) -> float | None:
        """Return an amount; negative values become None."""
        return value if value is None or value >= 0.0 else None


class _Manifest(BaseModel):
    """The manifest of a complete checkpoint."""

    model_config = ConfigDict(extra="ignore", strict=True)

    generation: Count
    step: Count
    sha256: Text
    path: Text


class _Kept(RootModel[Annotated[list[_Manifest], Field(max_length=MOST_LINES)]]):
    """Checkpoints that are stored at their destination."""


class _Failure(_Word):
    """The exception that ended a unit's command."""

    kinds: Annotated[list[Text], Field(max_length=MOST_LINES)]
    errno: int | None = None
    said: Text
    at: Annotated[float, Field(allow_inf_nan=False)] | None = None


class _Status(_Word):
    """The status message of a unit."""

    job: Identifier
    generation: Count
    rank: Annotated[int, Field(ge=0, le=MOST_RANKS)]
    is_kept: bool = False
    was_kept: bool = False
    progress: _Progress | None = None
    exit: _Exit | None
    manifest: _Manifest | None = None
    kept: _Kept = _Kept([])
    failure: _Failure | None = None
    wrong_manifest: Text = ""
    last_lines: Annotated[list[Text], Field(max_length=MOST_LINES)] = Field(default_factory=list)
    quiet_seconds: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = None
    node_faults: Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=64)] = Field(
        default_factory=list
    )


class _Detail(_Word):
    """The instance and state of an event."""

    instance_id: Identifier = Field(alias="instance-id")
    state: Text = ""


class _Event(_Word):
    """An event as EventBridge sends it."""

    kind: Text = Field(alias="detail-type")
    time: Text
    detail: _Detail


_PARTS: Mapping[str, type[BaseModel]] = {
    "progress": _Progress,
    "manifest": _Manifest,
    "kept": _Kept,
    "failure": _Failure,
}


def json_object(body: object, source: str) -> dict[str, Any] | None:
    """Return the JSON object in a text; count a text without one as dropped, and return None."""
    if not isinstance(body, str) or len(body) > MOST_BYTES:
        DROPPED_MESSAGES.note(source, "not a text of reasonable length")
        return None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        DROPPED_MESSAGES.note(source, "not a JSON object")
        return None
    return document


def parse_unit_status(document: object, source: str) -> dict[str, Any] | None:
    """Return a unit's status with typed fields; count an invalid one as dropped, and return None."""
    if not isinstance(document, Mapping):
        DROPPED_MESSAGES.note(source, "not a JSON object")
        return None
    words = dict(document)
    for name, model in _PARTS.items():
        if words.get(name) is not None and _checked(model, words[name], f"{source}, {name}") is None:
            del words[name]
    found = _checked(_Status, words, source)
    return None if found is None else found.model_dump()


def is_authentic(
    document: Mapping[str, Any], source: str, *, key: str, after: int | None = None, told: int | None = None
) -> bool:
    """Return whether a unit's status is new and sealed with its generation's key; count it if not.

    `after` is the number of the last status, `told` the number that an answer must carry. Without a key, in a
    generation that an earlier version started, every status counts as authentic.
    """
    if not key:
        return True
    number = document.get(TOLD)
    if not isinstance(number, int) or not is_sealed(document, key):
        DROPPED_MESSAGES.note(source, "forged: without the seal of its generation")
        return False
    if (after is not None and number <= after) or (told is not None and number != told):
        DROPPED_MESSAGES.note(source, "replayed: an old message, or an answer to another question")
        return False
    return True


def parse_event(document: object, source: str) -> tuple[str, str, float, str] | None:
    """Return (kind, instance, instant, state) of an event; count an invalid one, and return None."""
    found = _checked(_Event, document, source)
    if not isinstance(found, _Event):
        return None
    try:
        at = datetime.fromisoformat(found.time.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        at = -1.0
    if not 0.0 <= at <= LATEST_EVENT:
        DROPPED_MESSAGES.note(source, "an instant that cannot be read")
        return None
    return found.kind, found.detail.instance_id, at, found.detail.state


def _checked(model: type[BaseModel], value: object, source: str) -> BaseModel | None:
    """Return a value as a model; count an invalid one as dropped, and return None."""
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        fault = invalid.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        DROPPED_MESSAGES.note(source, f"{where or 'the message'}: {fault['msg']}")
    except (RecursionError, OverflowError, ValueError) as error:
        DROPPED_MESSAGES.note(source, type(error).__name__)
    return None
