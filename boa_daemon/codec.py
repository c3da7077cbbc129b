"""Nouns as JSON and back, exactly: what a tick saw and what it did must be readable a year later.

A dataclass becomes ``{"$": name, field: value}``, fields that have their default being left out; a mapping
becomes an object, or a list of pairs where its keys are not text; tuples become lists and lists come back as
tuples. Floats are written so that they come back to the bit. Classes are known by name, from an explicit
table: a record cannot make the reader build anything else.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from math import isfinite
from typing import Any

from boa_daemon import actions, limits, offers, ports, state
from boa_daemon.errors import BoaError
from policies import model, pacing, registry, speedup

_KEY = "$"
_KNOWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for module in (actions, limits, offers, ports, state, model, pacing, registry, speedup)
    for kind in vars(module).values()
    if isinstance(kind, type) and is_dataclass(kind)
}
_Encoder = Callable[[Any], Any]
_encoders: dict[type[Any], _Encoder] = {}


class UnreadableRecord(BoaError):
    """A stored record names something that this version does not know."""


def encode(value: Any) -> Any:
    """Return a value as what `json` can write."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if isfinite(value) else {_KEY: "float", "is": repr(value)}
    encoder = _encoders.get(kind)
    if encoder is None:
        encoder = _encoders[kind] = _encoder_of(kind)
    return encoder(value)


def _encoder_of(kind: type[Any]) -> _Encoder:
    """Return how values of a type are written."""
    if is_dataclass(kind):
        return _dataclass_encoder(kind)
    if issubclass(kind, Mapping):
        return _mapping
    if issubclass(kind, tuple | list):
        return lambda value: [encode(item) for item in value]
    if issubclass(kind, frozenset | set):
        return lambda value: {_KEY: "set", "is": [encode(item) for item in sorted(value)]}
    if issubclass(kind, float):
        return lambda value: encode(float(value))
    if hasattr(kind, "item"):
        return lambda value: encode(value.item())
    raise BoaError(f"a {kind.__name__} cannot be recorded")


def _dataclass_encoder(kind: type[Any]) -> _Encoder:
    """Return how values of a dataclass are written; private fields are caches and stay out."""
    shown = [
        (
            field.name,
            field.default_factory() if field.default_factory is not MISSING else field.default,
        )
        for field in fields(kind)
        if field.init and not field.name.startswith("_")
    ]
    name = kind.__name__

    def write(value: Any) -> dict[str, Any]:
        document: dict[str, Any] = {_KEY: name}
        for key, default in shown:
            item = getattr(value, key)
            if item is default or (type(item) is type(default) and item == default):
                continue
            document[key] = encode(item)
        return document

    return write


def _mapping(value: Mapping[Any, Any]) -> Any:
    """Return a mapping as an object, or as pairs where its keys are not plain text."""
    if all(type(key) is str and key != _KEY for key in value):
        return {key: encode(item) for key, item in value.items()}
    return {_KEY: "map", "is": [[encode(key), encode(item)] for key, item in value.items()]}


def decode(document: Any) -> Any:
    """Return the value that was encoded.

    Raises:
        UnreadableRecord: when it names a class or a field that is not known here.
    """
    if isinstance(document, list):
        return tuple(decode(item) for item in document)
    if not isinstance(document, dict):
        return document
    name = document.get(_KEY)
    if name is None:
        return {key: decode(item) for key, item in document.items()}
    if name == "float":
        return float(document["is"])
    if name == "set":
        return frozenset(decode(item) for item in document["is"])
    if name == "map":
        return {decode(key): decode(item) for key, item in document["is"]}
    try:
        return _KNOWN[name](**{key: decode(item) for key, item in document.items() if key != _KEY})
    except (KeyError, TypeError) as error:
        raise UnreadableRecord(f"a record holds {name!r}, which this version cannot read: {error}") from None


def dumps(value: Any) -> str:
    """Return a value as compact JSON text; equal values give equal text."""
    return json.dumps(encode(value), separators=(",", ":"), allow_nan=False)


def loads(text: str) -> Any:
    """Return the value in JSON text."""
    return decode(json.loads(text))


def pack(text: str) -> bytes:
    """Return text compressed."""
    return zlib.compress(text.encode(), 1)


def unpack(data: bytes) -> str:
    """Return compressed text."""
    return zlib.decompress(data).decode()


def digest(text: str) -> str:
    """Return a short name of a text that no other text has."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
