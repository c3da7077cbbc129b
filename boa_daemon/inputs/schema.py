"""Check documents against pydantic models, and report the first fault in one sentence.

Models inherit `Strict`: unknown keys are errors, text is not a number, true is not 1, NaN is not allowed.
A field's description names its unit, and appears in the hint for an unknown key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from boa_daemon.errors import InputError, column_hint, did_you_mean
from boa_daemon.inputs.document_file import Document, KeyPath
from boa_daemon.number_text import number_readings
from policies.speedup import MAX_GPUS

LEAST, MOST = 1e-12, 1e12
"""Rates, sizes, prices and speeds outside this range are typing errors, and vanish in rounding."""

Positive = Annotated[float, Field(ge=LEAST, le=MOST)]
NotNegative = Annotated[float, Field(ge=0.0, le=MOST)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


def _whole(value: object) -> object:
    """Return 8 for 8.0, as spreadsheets and data frames write whole numbers; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Gpus = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=MAX_GPUS)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=10**12)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(strict=False)]
"""A list of names in a file, a tuple in the program."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Metadata of a setting that limits something: the change that loosens the limit.

    ``up`` and ``down`` are about a number, or each number of a table; ``more`` and ``fewer`` about the items
    of a list or table; ``true`` and ``false`` about a switch; ``other`` means any other value, and
    ``replaced`` another value in place of one that is not the default. A number that is unset limits nothing.
    `why` says what the change would do, where that is not plain from its direction.
    """

    loosened_by: Literal["up", "down", "more", "fewer", "true", "false", "other", "replaced"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class NoLimit:
    """Metadata of a setting that limits nothing, neither money nor rights nor who is told."""


_Type = TypeVar("_Type")
Free: TypeAlias = Annotated[_Type, NoLimit()]
"""The type of a setting that limits nothing. Every setting of the daemon is either `Free` or has a `Limit`:
a change of one that does not say what it is needs consent."""


@dataclass(frozen=True, slots=True)
class ReadBy:
    """Metadata of a setting that only these clouds, by their names, read: with others it has no effect."""

    clouds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Private:
    """Metadata of a setting whose value may hold a password: messages and answers do not quote it."""


class Strict(BaseModel):
    """A mapping with exactly these keys."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _knows_every_key(cls, value: object) -> object:
        """Refuse unknown keys before other checks: a misspelt key often explains why another is missing."""
        if isinstance(value, Mapping):
            for key in value:
                if key not in cls.model_fields:
                    raise PydanticCustomError(
                        "unknown_key", "unknown key", {"key": key, "hint": cls._hint(key)}
                    )
        return value

    @classmethod
    def _hint(cls, key: object) -> str:
        """Return a hint that names the closest key and its unit."""
        meanings = {name: known.description or "" for name, known in cls.model_fields.items()}
        return did_you_mean(str(key), meanings, meanings=meanings)


_Model = TypeVar("_Model", bound=Strict)


def checked(model: type[_Model], value: object, *, document: Document, at: KeyPath = ()) -> _Model:
    """Return `value`, found at path `at` of a document, as a model.

    Raises:
        InputError: for the first fault, in one sentence that names the key, the file and the line.
    """
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        fault = invalid.errors(include_url=False)[0]
    raise _sentence(fault, document, at, model)


def spoken(at: KeyPath, content: object) -> str:
    """Return a path as readable text, with list items by name: ``classes['vision'].weight``."""
    words = ""
    for key in at:
        content = _step(content, key)
        if isinstance(key, int):
            name = _step(content, "name")
            words += f"[{name!r}]" if isinstance(name, str) else f"[{key}]"
        else:
            words += f".{key}" if words else str(key)
    return words or "the file"


def a_kind(value: object) -> str:
    """Return what a value is, for "got ...": ``the text '3'``, ``a list``, ``nothing``, ``-1.0``."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f"the text {value if len(value) <= 40 else value[:40] + '...'!r}"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a whole number of about {value.bit_length() * 0.30103:.0f} digits"
    return str(value)


def _step(content: object, key: str | int) -> object:
    """Return the value at a key, or None."""
    if isinstance(content, Mapping):
        return content.get(key)
    if isinstance(content, list) and isinstance(key, int) and key < len(content):
        return content[key]
    return None


def _sentence(fault: ErrorDetails, document: Document, at: KeyPath, model: type[Strict]) -> InputError:
    """Return the error for a pydantic fault, in one sentence."""
    context: dict[str, Any] = fault.get("ctx", {})
    kind, value = fault["type"], fault["input"]
    path: KeyPath = at + tuple(part for part in fault["loc"] if part != "[key]")
    # The line identifies the row of a CSV file, and the column its cell.
    in_row = document.language == "csv" and isinstance(path[0] if path else None, int)
    where = spoken(path[1:] if in_row else path, document.content)
    if kind == "unknown_key" and in_row:
        hint = column_hint(str(context["key"]), model.model_fields)
        return document.error(f"unknown column {context['key']!r}", hint=hint)
    if kind == "unknown_key":
        path = (*path, str(context["key"]))
        inside = "" if where == "the file" else f" in {where}"
        return document.error(f"unknown key {context['key']!r}{inside}", at=path, hint=context["hint"])
    if kind == "one_too_many":
        return document.error(f"{where} {context['said']}", at=path, hint=context["hint"])
    if kind == "missing":
        known = model.model_fields.get(str(path[-1])) if len(fault["loc"]) == 1 else None
        meaning = "" if known is None or not known.description else f"It is: {known.description}"
        return document.error(f"{where} is missing", at=path, hint=meaning)
    if "[key]" in fault["loc"]:
        return document.error(f"{where}: a name must be text; put quotes around it", at=path)
    typed = document.typed(path) if kind in _AS_TYPED and not isinstance(value, str) else None
    got = typed if typed and len(typed) <= 40 and value is not None else a_kind(value)
    problem = f"{where} must be {wanted(kind, value, context)}; got {got}"
    hint = _to_type(kind, value, context, typed=typed or "", key=str(path[-1]) if path else "")
    return document.error(problem, at=path, hint=hint)


NAME_FORM = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
FORMS = {NAME_FORM: "letters, digits, dots, underscores and hyphens, a letter or a digit first"}
"""Descriptions of patterns in plain words; a module with a pattern adds its own."""
_NUMBER = re.compile(
    r"(?P<money>[$€£]?)\s*(?P<digits>[^A-Za-z$€£%/]*?|[+-]?0[xXoObB]\w+|[^A-Za-z$€£%/]*[eE][+-]?\d+)\s*(?P<unit>[A-Za-z$€£%/]*)"
)
_UNITS = {
    "seconds": ("s", "sec", "secs", "second", "seconds"),
    "minutes": ("m", "min", "mins", "minute", "minutes"),
    "hours": ("h", "hr", "hrs", "hour", "hours"),
    "days": ("d", "day", "days"),
    "gb": ("gb",),
    "gib": ("gib",),
    "gpus": ("gpu", "gpus"),
    "usd": ("$", "usd", "dollar", "dollars"),
}
"""By the last word of a key: the units that a number for it may carry in a hint."""
_SAYS_YES, _SAYS_NO = ("yes", "on", "true"), ("no", "off", "false")


def _to_type(kind: str, value: Any, context: Mapping[str, Any], *, typed: str = "", key: str = "") -> str:
    """Return a hint with the corrected value, if the value shows what was meant; else empty.

    `typed` is an unquoted value as it stands in the file: a hint quotes 3.10, not 3.1.
    """
    if kind in ("float_type", "int_type") and isinstance(value, str):
        return number_hint(value, key=key, is_whole=kind == "int_type")
    if kind in ("int_type", "int_from_float") and isinstance(value, float) and value.is_integer():
        return f"Write {int(value)}"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f'Put quotes around it: "{typed or a_kind(value)}"'
    if kind == "string_type" and value is None and typed:
        return f'Put quotes around it if the text is meant: "{typed}"'
    if kind == "bool_type" and str(value).lower() in _SAYS_YES + _SAYS_NO:
        return f"Write {'true' if str(value).lower() in _SAYS_YES else 'false'}, without quotes"
    if kind == "literal_error" and isinstance(value, str):
        known = re.findall(r"'([^']*)'", str(context.get("expected")))
        return did_you_mean(value, known) if get_close_matches(value, known, n=1) else ""
    if kind in ("model_type", "model_attributes_type"):
        named = _by_name(Strict, str(context.get("class_name")))
        return "" if named is None else f"Its keys are {', '.join(named.model_fields)}"
    return ""


_AS_TYPED = ("string_type", "int_type", "int_from_float")
"""Faults whose sentence quotes a number as it was typed."""


def number_hint(text: str, *, key: str = "", is_whole: bool = False) -> str:
    """Return how to write the number that a text shows; both numbers where it may be two, else empty.

    A unit is left out only where the key has the same one: 90 m are not 90 for a key in hours.
    """
    parts = _NUMBER.fullmatch(text.strip())
    readings = () if parts is None else number_readings(parts["digits"])
    if parts is None or not readings:
        return ""
    unit = parts["unit"].lower() or parts["money"]
    if unit == "%":
        return f"Write {float(readings[0]) / 100.0:g}: it is a fraction" if len(readings) == 1 else ""
    of_key = next((units for word, units in _UNITS.items() if word in key.lower().split("_")), None)
    if unit and unit not in (of_key or ()) and not (unit in "$€£" and of_key is None):
        return (
            f"Write a number without a unit, as {key!r} counts it" if key else "Write a number without a unit"
        )
    readings = tuple(re.sub(r"^([+-]?)0+(?=\d)", r"\1", one) for one in readings)
    if is_whole:
        readings = tuple(str(int(float(one))) for one in readings if float(one).is_integer())
    if len(readings) == 2:
        return f"It may mean two numbers: write {readings[0]} or {readings[1]}, without quotes"
    return f"Write {readings[0]}, without quotes and without a unit" if readings else ""


def _by_name(model: type[Strict], name: str) -> type[Strict] | None:
    """Return the model of a name among a model and its subclasses."""
    if model.__name__ == name:
        return model
    return next((found for child in model.__subclasses__() if (found := _by_name(child, name))), None)


def wanted(kind: str, value: Any, context: Mapping[str, Any]) -> str:
    """Return the expected kind of value, from the kind of fault."""
    if kind == "greater_than_equal":
        return "more than zero" if context["ge"] == LEAST and value <= 0 else f"at least {context['ge']:g}"
    if kind == "less_than_equal":
        return f"at most {context['le']:g}"
    if kind == "less_than":
        return f"less than {context['lt']:g}"
    return {
        "float_type": "a number",
        "float_parsing": "a number",
        "int_parsing": "a whole number",
        "int_from_float": "a whole number",
        "finite_number": "a finite number",
        "int_type": "a whole number",
        "string_type": "text",
        "string_too_short": "text of at least one character",
        "string_too_long": f"text of at most {context.get('max_length')} characters",
        "string_pattern_mismatch": FORMS.get(
            str(context.get("pattern")), f"of the form {context.get('pattern')}"
        ),
        "too_short": "a list of at least one item",
        "list_type": "a list",
        "tuple_type": "a list",
        "mapping_type": "a mapping",
        "dict_type": "a mapping",
        "model_type": "a mapping",
        "model_attributes_type": "a mapping",
        "date_type": "a date",
        "bool_type": "true or false",
        "literal_error": f"one of {context.get('expected')}",
    }.get(kind, kind.replace("_", " "))
