"""Lists default values of a package's dataclasses, and functions with caches or positional parameters."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cached_property
from importlib import import_module
from inspect import Parameter, signature
from math import inf
from types import FunctionType, ModuleType
from typing import Any


def unnamed(package: ModuleType, *, deep: bool = True) -> dict[str, Any]:
    """Return the defaults by "Class.field", except empty and infinite ones.

    Empty means zero, False, None or an empty container. `deep` includes packages inside the package.
    """
    return {
        name: value
        for name, field in _fields(package, deep)
        if (value := _default(field)) not in (None, inf) and (value or field.default_factory is MISSING)
        if value not in (0, "", (), frozenset())
    }


def hidden(package: ModuleType, *, deep: bool = True) -> dict[str, str]:
    """Return by "Class.field" which of "init repr compare" a field is excluded from."""
    parts = ("init", "repr", "compare")
    found = {
        name: " ".join(part for part in parts if not getattr(field, part))
        for name, field in _fields(package, deep)
    }
    return {name: said for name, said in found.items() if said}


def by_place(package: ModuleType, *, deep: bool = True) -> list[str]:
    """Return the functions and methods with positional-only parameters."""
    found = []
    for module in _modules(package, deep):
        for owner in (module, *_own(module, type)):
            for each in _own(owner, FunctionType):
                kinds = {each.kind for each in signature(each).parameters.values()}
                if Parameter.POSITIONAL_ONLY in kinds:
                    found.append(each.__qualname__)
    return found


def hurried(package: ModuleType, *, deep: bool = True) -> dict[str, int | str | None]:
    """Return fast dataclasses, cached properties, and cached functions with their cache sizes."""
    found: dict[str, int | str | None] = {}
    for module in _modules(package, deep):
        for name, each in vars(module).items():
            if hasattr(each, "cache_parameters") and getattr(each, "__module__", "") == module.__name__:
                found[name] = each.cache_parameters()["maxsize"]
        for cls in _own(module, type):
            if "UNCHANGED" in getattr(cls.__init__, "__globals__", {}):
                found[cls.__name__] = "quick"
            for name, each in vars(cls).items():
                if isinstance(each, cached_property):
                    found[f"{cls.__name__}.{name}"] = "kept"
    return found


def _own(owner: ModuleType | type, kind: type) -> list[Any]:
    """Return the members of this kind that are defined in a module or class, unwrapped."""
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    parts = (
        getattr(each, "fget", None) or getattr(each, "__wrapped__", each) for each in vars(owner).values()
    )
    parts = (getattr(each, "__func__", each) for each in parts)
    return [each for each in parts if isinstance(each, kind) and each.__module__ == name]


def _default(field: Field[Any]) -> Any:
    """Return a field's default, or None if it has none."""
    if field.default is not MISSING:
        return field.default
    return None if field.default_factory is MISSING else field.default_factory()


def _modules(package: ModuleType, deep: bool) -> Iterator[ModuleType]:
    walk = pkgutil.walk_packages if deep else pkgutil.iter_modules
    for info in walk(package.__path__, package.__name__ + "."):
        yield import_module(info.name)


def _fields(package: ModuleType, deep: bool) -> Iterator[tuple[str, Field[Any]]]:
    """Yield the fields of the dataclasses that are defined in a package."""
    for module in _modules(package, deep):
        for cls in _own(module, type):
            if is_dataclass(cls):
                own = vars(cls).get("__annotations__", {})
                yield from ((f"{cls.__name__}.{each.name}", each) for each in fields(cls) if each.name in own)
