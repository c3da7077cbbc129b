"""What BOA promises to keep: the calls, files and names that other programs use, as one document.

    python tests/public_surface.py > tests/data/releases/VERSION/surface.json

A release records it, and a test compares each record with the present program: names may be added, none may
go.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer.main

from boa_daemon import errors
from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.cli import app
from boa_daemon.cli.common.schemas import SchemaName, schema_of
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.engines import generation_units
from policies import plugins

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("boa_daemon", "boa_daemon.job", "policies")
_CODE = re.compile(r"^\| `([\w.-]+)`", re.MULTILINE)


def surface() -> dict[str, Any]:
    """Return the document: each entry is a list of names, or maps a name to its parts."""
    return {
        "exit codes": {
            name: value for name, value in vars(errors).items() if name.isupper() and isinstance(value, int)
        },
        "commands": dict(_commands(typer.main.get_command(app))),
        "files": {kind.value: sorted(set(_keys(schema_of(kind)))) for kind in SchemaName},
        "calls": {name: dict(_calls(name)) for name in LIBRARIES},
        "http": {path: sorted(methods) for path, methods in _routes().items()},
        "plug-ins": sorted(plugins.GROUPS),
        "reason codes": _listed("reason-codes.md"),
        "metrics": [name for name in _listed("metrics.md") if name.startswith("boa_")],
        "variables of a job": sorted(set(re.findall(r"BOA_[A-Z_]+", inspect.getsource(generation_units)))),
    }


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield each command with its long flags."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        else:
            flags = {flag for option in command.params for flag in option.opts if flag.startswith("--")}
            yield f"{before}{name}", sorted(flags)


def _keys(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys of every object of a schema."""
    for part in (schema, *schema.get("$defs", {}).values()):
        yield from part.get("properties", {})


def _calls(module: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each public name of a module with the names of its parameters, and of those of its methods."""
    found = importlib.import_module(module)
    for name in getattr(found, "__all__", ()):
        value = getattr(found, name)
        if inspect.isclass(value):
            for own, method in inspect.getmembers(value, callable):
                # Inherited ones too: the client has its verbs from declarations. Exception's are Python's.
                if not own.startswith("_") and not hasattr(Exception, own):
                    yield f"{name}.{own}", _parameters(method)
        yield name, _parameters(value) if callable(value) else []


def _parameters(function: Any) -> list[str]:
    """Return the names of the parameters, in order; none where Python cannot tell."""
    try:
        return [name for name in inspect.signature(function).parameters if not name.startswith("_")]
    except (TypeError, ValueError):
        return []


def _routes() -> dict[str, list[str]]:
    """Return the methods of each path of the HTTP API."""
    service: Any = None
    document = create_app(service, Authenticator(ApiSettings())).openapi()
    return {path: list(methods) for path, methods in document["paths"].items()}


def _page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def _listed(name: str) -> list[str]:
    """Return the first cells of the tables of a reference page, which tests hold equal to the program."""
    return sorted(set(_CODE.findall(_page(name))))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(surface(), indent=1, sort_keys=True) + "\n")
