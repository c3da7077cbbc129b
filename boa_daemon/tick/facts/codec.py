"""Dataclasses as JSON and back, exactly, so that records of ticks stay readable for years.

A dataclass becomes ``{"$": name, field: value}`` without the fields that have their default. A mapping
becomes an object, or a list of pairs if its keys are not text. Tuples become lists, and lists are read as
tuples. Floats survive to the bit. Classes are looked up by name in an explicit table, so a record cannot make
the reader build anything else.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from json.encoder import encode_basestring_ascii as _quoted
from math import isfinite
from typing import Any

from boa_daemon.errors import BoaError
from boa_daemon.tick.facts import actions, limits, offers, plan, ports, rests, retries, state
from policies import model, registry, speedup
from policies.memo import Memo
from policies.online import best_effort, pacing, rhythm

_KEY = "$"
_KNOWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for module in (
        actions,
        limits,
        offers,
        plan,
        ports,
        state,
        best_effort,
        model,
        pacing,
        registry,
        rests,
        retries,
        rhythm,
        speedup,
    )
    for kind in vars(module).values()
    if isinstance(kind, type) and is_dataclass(kind)
}
_Encoder = Callable[[Any], Any]


class UnreadableRecord(BoaError):
    """A stored record names a class or field that this version does not know."""


def encode(value: Any) -> Any:
    """Return a value in a form that `json` can write."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if isfinite(value) else {_KEY: "float", "is": repr(value)}
    return _ENCODERS[kind](value)


def _encoder_of(kind: type[Any]) -> _Encoder:
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


_ENCODERS: Memo[type[Any], _Encoder] = Memo(_encoder_of)


def _shown(kind: type[Any]) -> list[tuple[str, Any]]:
    """Return the public fields of a dataclass, each with its default; only these are written."""
    return [
        (
            field.name,
            field.default_factory() if field.default_factory is not MISSING else field.default,
        )
        for field in fields(kind)
        if field.init and not field.name.startswith("_")
    ]


_SHOWN: Memo[type[Any], list[tuple[str, Any]]] = Memo(_shown)


def _dataclass_encoder(kind: type[Any]) -> _Encoder:
    """Return the writer for a dataclass; private fields are caches and are left out."""
    shown, name = _SHOWN[kind], kind.__name__

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
        UnreadableRecord: when it names an unknown class or field.
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


_COMPACT = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def dumps(value: Any) -> str:
    """Return a value as compact JSON text; equal values give equal text."""
    if type(value) is int or (type(value) is float and isfinite(value)):
        return repr(value)  # As `json` writes it; half of what a changed job writes are single numbers.
    return _COMPACT.encode(encode(value))


class CachingEncoder:
    """Write dataclasses as `dumps` does, and write unchanged parts only once.

    From one tick to the next most jobs and nodes are the same objects, and a job that changed holds the same
    GPUs. The work is also split into many short calls, so that requests are answered in between.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, _Entry]] = {}

    def text_of(self, value: Any) -> str:
        """Return the text of a dataclass, exactly that of `dumps`."""
        fresh: dict[str, dict[str, _Entry]] = {}
        parts = [f'"{_KEY}":{_quoted(type(value).__name__)}']
        for key, default in _SHOWN[type(value)]:
            item = getattr(value, key)
            if item is default or (type(item) is type(default) and item == default):
                continue
            entries = _entries(item, self._known.get(key, {})) if isinstance(item, Mapping) else None
            if entries is None:
                parts.append(f"{_quoted(key)}:{dumps(item)}")
            else:
                fresh[key] = entries
                parts.append(f"{_quoted(key)}:{{{','.join([entry[1] for entry in entries.values()])}}}")
        self._known = fresh
        return f"{{{','.join(parts)}}}"


_Parts = dict[str, tuple[Any, str]]
_Entry = tuple[Any, str, _Parts]
"""An item of a mapping, its text with its key, and the texts of its fields, by name. It holds the item, so no
other object can have its identity meanwhile."""


def _entries(items: Mapping[Any, Any], known: Mapping[str, _Entry]) -> dict[str, _Entry] | None:
    """Return the entries of a mapping with keys of plain text, in its order; None if it has others."""
    found: dict[str, _Entry] = {}
    for key, item in items.items():
        if type(key) is not str or key == _KEY:
            return None
        entry = known.get(key)
        if entry is None or entry[0] is not item:
            text, parts = _text_and_parts(item, {} if entry is None else entry[2])
            entry = item, f"{_quoted(key)}:{text}", parts
        found[key] = entry
    return found


def _text_and_parts(item: Any, known: _Parts) -> tuple[str, _Parts]:
    """Return the text of an item, and of those fields of a dataclass that may be the same in the next one."""
    if not is_dataclass(item):
        return dumps(item), {}
    parts: _Parts = {}
    texts = [f'"{_KEY}":{_quoted(type(item).__name__)}']
    for key, default in _SHOWN[type(item)]:
        field = getattr(item, key)
        if field is default or (type(field) is type(default) and field == default):
            continue
        if isinstance(field, tuple):
            part = known.get(key)
            parts[key] = part = part if part is not None and part[0] is field else (field, dumps(field))
            texts.append(f"{_quoted(key)}:{part[1]}")
        else:
            texts.append(f"{_quoted(key)}:{dumps(field)}")
    return f"{{{','.join(texts)}}}", parts


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
    """Return a short hash that identifies a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
