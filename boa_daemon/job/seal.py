"""The seal on the status of a unit: HMAC-SHA-256 with the key of its generation.

A key is made at each start and stored beside that generation's units, readable only by their keepers. All
that a keeper writes or sends carries the seal. So nobody else can claim that a job has ended or lives, and a
message of one generation is not valid for another. The sealed field `told` prevents replay: in a message sent
unasked it is the time since the node booted, in microseconds, which no clock change sets back; in an answer
it is the number of the question.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.job.gate.token import prove, read_token
from boa_daemon.job.regular_files import UNREADABLE

KEY_FILE = "status.key"
SEAL, TOLD = "seal", "told"


def key_of(unit_folder: Path) -> str:
    """Return the key of a unit's generation; empty if there is none, or if we may not read it.

    Raises:
        OSError: when it cannot be read now. Without its key any document would pass for the keeper's.
    """
    try:
        return read_token(unit_folder.parent / KEY_FILE)
    except ValueError:
        return ""
    except OSError as error:
        if error.errno in UNREADABLE:
            raise
        return ""


def sealed(document: Mapping[str, Any], key: str, *, told: int | None = None) -> dict[str, Any]:
    """Return a document with `told` and its seal; unchanged if the key is empty."""
    if not key:
        return dict(document)
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    words = {**document, TOLD: now if told is None else told}
    return {**words, SEAL: prove(key, _text(words))}


def is_sealed(document: Mapping[str, Any], key: str) -> bool:
    """Return whether a document carries a valid seal of a key."""
    words, seal = dict(document), document.get(SEAL)
    words.pop(SEAL, None)
    if not isinstance(seal, str) or not seal.isascii():
        return False
    try:
        return hmac.compare_digest(seal, prove(key, _text(words)))
    except (RecursionError, TypeError, ValueError):
        return False


def _text(words: Mapping[str, Any]) -> str:
    """Return the canonical JSON of a document, which both sides seal."""
    return json.dumps(words, sort_keys=True, separators=(",", ":"))
