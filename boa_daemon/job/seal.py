"""The seal on what a unit says of itself: HMAC-SHA-256 with the key of its generation.

The key is made at each start and lies in a file beside that generation's units, for their keepers alone. What
a keeper writes down or sends carries its seal, so nobody else can say that a job has ended, or that it lives,
and what one generation said is worth nothing for another. `told` is a number under the seal: in what is sent
unasked it is the time since the node booted, which no clock sets back, so what was said before cannot be said
again; in an answer it is the question's number.
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.job.gate.token import prove, read_token

KEY_FILE = "status.key"
SEAL, TOLD = "seal", "told"


def key_of(unit_folder: Path) -> str:
    """Return the key of a unit's generation; empty where there is none, or it is not ours to read."""
    try:
        return read_token(unit_folder.parent / KEY_FILE)
    except (OSError, ValueError):
        return ""


def sealed(document: Mapping[str, Any], key: str, *, told: int | None = None) -> dict[str, Any]:
    """Return a document with its seal; as it is where there is no key."""
    if not key:
        return dict(document)
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    words = {**document, TOLD: now if told is None else told}
    return {**words, SEAL: prove(key, _text(words))}


def is_sealed(document: Mapping[str, Any], key: str) -> bool:
    """Return whether a document carries the seal of a key."""
    words, seal = dict(document), document.get(SEAL)
    words.pop(SEAL, None)
    if not isinstance(seal, str) or not seal.isascii():
        return False
    try:
        return hmac.compare_digest(seal, prove(key, _text(words)))
    except (RecursionError, TypeError, ValueError):
        return False


def _text(words: Mapping[str, Any]) -> str:
    """Return a document as the one text that both sides reckon with."""
    return json.dumps(words, sort_keys=True, separators=(",", ":"))
