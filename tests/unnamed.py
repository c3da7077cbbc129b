"""What the fields of a package's dataclasses are where nobody names them."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from math import inf
from types import ModuleType
from typing import Any


def unnamed(package: ModuleType, *, deep: bool = True) -> dict[str, Any]:
    """Return by "Class.field" what is not nothing, or infinite, where nobody names it.

    Nothing is zero, False, None or empty. `deep` looks into packages inside the package too.
    """
    return {
        name: value
        for name, field in _fields(package, deep)
        if (value := _default(field)) not in (None, inf) and (value or field.default_factory is MISSING)
        if value not in (0, "", (), frozenset())
    }


def hidden(package: ModuleType, *, deep: bool = True) -> dict[str, str]:
    """Return by "Class.field" which of "init repr compare" a field takes no part in, where it does not."""
    parts = ("init", "repr", "compare")
    found = {
        name: " ".join(part for part in parts if not getattr(field, part))
        for name, field in _fields(package, deep)
    }
    return {name: said for name, said in found.items() if said}


def _default(field: Field[Any]) -> Any:
    """Return what a field is where nobody names it; None where it has to be named."""
    if field.default is not MISSING:
        return field.default
    return None if field.default_factory is MISSING else field.default_factory()


def _fields(package: ModuleType, deep: bool) -> Iterator[tuple[str, Field[Any]]]:
    """Yield the fields of the dataclasses that are defined in a package."""
    prefix = package.__name__ + "."
    walk = pkgutil.walk_packages if deep else pkgutil.iter_modules
    for info in walk(package.__path__, prefix):
        module = import_module(info.name)
        for cls in vars(module).values():
            if isinstance(cls, type) and is_dataclass(cls) and cls.__module__ == module.__name__:
                own = vars(cls).get("__annotations__", {})
                yield from ((f"{cls.__name__}.{each.name}", each) for each in fields(cls) if each.name in own)
