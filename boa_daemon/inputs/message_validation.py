"""The door for what machines say: statuses of units, warnings and events, files of nodes, answers of clouds.

Anybody on a node can write to the queue, to a progress file, to a tag. So whatever comes in is held against a
schema first; what is wrong is counted, logged once of each kind, and dropped, never raised. A part that is
wrong and that nothing hangs on (the progress, a checkpoint, an exception) is dropped alone, so that the word
that a job has ended still arrives.
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
"""No message and no file of a node is longer: SQS takes 256 KiB, SSM gives back 24,000 characters."""
MOST_RANKS, MOST_STEPS, MOST_LINES = 100_000, 2**53, 1000
LATEST_EVENT = 32_503_680_000.0
"""The year 3000: an instant beyond is a slip, and other programs cannot write it down."""

Count = Annotated[int, Field(ge=0, le=MOST_STEPS)]
Text = Annotated[str, Field(max_length=100_000)]
Identifier = Annotated[str, Field(min_length=1, max_length=256)]


class DroppedMessages:
    """How much was dropped, by where it came from; the first of each kind is logged."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._logged: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def note(self, source: str, why: str) -> None:
        """Count a message that was dropped, and say why, once."""
        kind = (source, why.partition(":")[0])
        with self._lock:
            self._counts[source] += 1
            is_new = kind not in self._logged and len(self._logged) < MOST_LINES
            self._logged.add(kind) if is_new else None
        if is_new:
            _LOG.warning("a message was dropped: %s: %s", source, why[:300], extra={"source": source})

    def counts(self) -> Mapping[str, int]:
        """Return how many messages of each source were dropped since the start."""
        with self._lock:
            return dict(self._counts)


DROPPED_MESSAGES = DroppedMessages()
"""Of this process, as its log is: messages come in through several threads and rooms."""


class _Word(BaseModel):
    """A part of a message: types are held to, what is not known is kept for those who know it."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Exit(_Word):
    """How a unit ended."""

    code: Annotated[int, Field(ge=-1000, le=1000)] | None
    stop_asked: bool
    killed: bool
    out_of_memory: bool
    lingering: Count = 0
    is_done: bool
    lacks_result: bool
    agent_lost: bool = False
    ended_at: Annotated[float, Field(allow_inf_nan=False)] | None = None


class _Progress(_Word):
    """What the job says of itself."""

    generation: Count
    step: Count | None = None
    samples: float | None = None
    seconds: float | None = None
    loss: float | None = None
    gradient_noise: float | None = None
    at: float | None = None

    @field_validator("samples", "seconds", "loss", "gradient_noise", "at")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        """Return a number that can be reckoned with; a loss that is none any more is left out."""
        return value if value is not None and abs(value) <= 1e300 else None

    @field_validator("samples", "seconds")
    @classmethod
    def _not_negative(cls, value: float | None) -> float | None:
        """Return an amount; less than nothing is none."""
        return value if value is None or value >= 0.0 else None


class _Manifest(BaseModel):
    """A checkpoint that is whole."""

    model_config = ConfigDict(extra="ignore", strict=True)

    generation: Count
    step: Count
    sha256: Text
    path: Text


class _Kept(RootModel[Annotated[list[_Manifest], Field(max_length=MOST_LINES)]]):
    """Checkpoints that stand where they are brought."""


class _Failure(_Word):
    """The exception that ended a unit's command."""

    kinds: Annotated[list[Text], Field(max_length=MOST_LINES)]
    errno: int | None = None
    said: Text
    at: Annotated[float, Field(allow_inf_nan=False)] | None = None


class _Status(_Word):
    """What a unit says."""

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
    """Which instance an event is about."""

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
    """Return the JSON object in a text; None, counted, where it is none."""
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
    """Return a unit's word with every field in its type; None, counted, where it cannot be believed."""
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
    """Return whether a unit's word carries the seal of its generation's key, and is new; counted where not.

    `after` is the number that was heard last, `told` the one that an answer has to carry. Without a key, in a
    generation that an earlier version started, every word is believed.
    """
    if not key:
        return True
    number = document.get(TOLD)
    if not isinstance(number, int) or not is_sealed(document, key):
        DROPPED_MESSAGES.note(source, "forged: without the seal of its generation")
        return False
    if (after is not None and number <= after) or (told is not None and number != told):
        DROPPED_MESSAGES.note(source, "replayed: said before, or to another question")
        return False
    return True


def parse_event(document: object, source: str) -> tuple[str, str, float, str] | None:
    """Return (kind, instance, instant, state) of an event; None, counted, where it is none."""
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
    """Return a value as a model; None, counted, where it does not have its form."""
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        fault = invalid.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        DROPPED_MESSAGES.note(source, f"{where or 'the message'}: {fault['msg']}")
    except (RecursionError, OverflowError, ValueError) as error:
        DROPPED_MESSAGES.note(source, type(error).__name__)
    return None
