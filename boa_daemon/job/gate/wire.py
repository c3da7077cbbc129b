"""Frames between jobs and the gate: one JSON object per line, of limited length.

    who      op         fields
    gate     challenge  nonce
    job      hello      version, job, generation, role, proof, nonce, nics, gpus, weight
    gate     welcome    proof, policy, beat_seconds
    job      ask        id, ready_bytes, message_bytes, what it measured; fence, seconds of the last message
    gate     wait       id                        at once where it must wait, then every beat
    gate     grant      id, fence, bytes, lease_seconds, free_iterations, overhead_fraction
    job      done       fence, seconds
    job      cancel     id
    planner  plan       remaining_gpu_seconds by job; generations by job
    planner  status     answered by one frame, status
    gate     refused    reason; the connection closes

Only durations are sent, never instants, because clocks may differ. Standard library only, so that a training
process imports nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

VERSION = 2
MOST_FRAME_BYTES = 8192
"""Limit of a job's frame; a longer frame closes the connection."""
MOST_ANSWER_BYTES = 4_000_000
"""Limit of a frame from the gate; enough for a status with some thousand jobs."""
MOST_NICS = 512


class MalformedFrame(Exception):
    """A frame that is too long, is not a JSON object, or has a bad field; the connection is unusable then."""


def encode(frame: Mapping[str, Any]) -> bytes:
    """Return the bytes of a frame."""
    return json.dumps(frame, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the frame in a line.

    Raises:
        MalformedFrame: when the line is not a JSON object.
    """
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        raise MalformedFrame("a frame is not JSON") from None
    if not isinstance(frame, dict):
        raise MalformedFrame(f"a frame is a JSON object; got {type(frame).__name__}")
    return frame


class FrameBuffer:
    """Splits received bytes into frames; holds at most one unfinished frame of limited length."""

    def __init__(self, most_bytes: int = MOST_FRAME_BYTES) -> None:
        self._most_bytes = most_bytes
        self._rest = b""

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the frames that are complete now, in order.

        Raises:
            MalformedFrame: when a frame is too long or not a JSON object.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if any(len(line) > self._most_bytes for line in (*lines, self._rest)):
            raise MalformedFrame(f"a frame is longer than {self._most_bytes} bytes")
        return [decode(line) for line in lines if line.strip()]


def number(frame: Mapping[str, Any], key: str, *, least: float = 0.0, most: float = 1e18) -> float:
    """Return a field that must be a finite number within bounds.

    Raises:
        MalformedFrame: when it is not.
    """
    value = frame.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MalformedFrame(f"{key} must be a number")
    # Compare before converting: an integer of a thousand digits does not fit into a float.
    if not least <= value <= most:
        raise MalformedFrame(f"{key} must lie between {least:g} and {most:g}")
    return float(value)


def maybe_number(frame: Mapping[str, Any], key: str, *, least: float = 0.0) -> float | None:
    """Return a field that is a number, or None if it is missing or null."""
    return None if frame.get(key) is None else number(frame, key, least=least)


def whole(frame: Mapping[str, Any], key: str, *, least: int = 0) -> int:
    """Return a field that must be a whole number.

    Raises:
        MalformedFrame: when it is not.
    """
    value = frame.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise MalformedFrame(f"{key} must be a whole number of {least} or more")
    return value


def word(frame: Mapping[str, Any], key: str) -> str:
    """Return a field that must be a short text of printable characters.

    Raises:
        MalformedFrame: when it is not.
    """
    return _word(frame.get(key), key)


def words(frame: Mapping[str, Any], key: str) -> frozenset[str]:
    """Return a field that must be a list of short texts, at least one.

    Raises:
        MalformedFrame: when it is not.
    """
    values = frame.get(key)
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_NICS:
        raise MalformedFrame(f"{key} must be a list of 1 to {MOST_NICS} names")
    return frozenset(_word(value, key) for value in values)


def _word(value: object, key: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise MalformedFrame(f"{key} must be a name of 1 to 256 printable characters")
    return value
