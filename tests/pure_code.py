"""What the code of `tick/` and `policies/` may import and call: the same inputs give the same answer.

Both read no clock, no file, no environment, no network and no random source of their own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType

_ALWAYS = frozenset(
    {"__future__", "bisect", "collections", "collections.abc", "dataclasses", "functools", "heapq"}
    | {"itertools", "math", "operator", "types", "typing"}
)
ALLOWED: Mapping[str, Set[str]] = MappingProxyType(
    {
        "boa_daemon/tick": _ALWAYS
        | {"boa_daemon.errors", "boa_daemon.tick", "boa_daemon.units", "datetime", "policies"},
        "policies": _ALWAYS | {"difflib", "numpy", "policies", "scipy", "zlib"},
    }
)
"""Modules that each package may import, with what is below them where it is a package of ours or of numpy."""

ALSO: Mapping[str, Set[str]] = MappingProxyType(
    {
        "boa_daemon/tick/decide/gc_pause.py": frozenset({"gc"}),
        # What a job file says to the process, which the package for training scripts declares.
        "boa_daemon/tick/facts/job_spec.py": frozenset({"boa_daemon.job.run_options"}),
        "boa_daemon/tick/facts/codec.py": frozenset({"hashlib", "json", "json.encoder", "zlib"}),
        "policies/fast_dataclasses.py": frozenset({"exec"}),
        "policies/plugins.py": frozenset({"importlib.metadata"}),
        "policies/registry.py": frozenset({"importlib"}),
    }
)
"""What single modules may import or call besides."""

_OPEN = frozenset({"boa_daemon.tick", "numpy", "policies", "scipy"})
_CALLS = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})
_CLOCKS = frozenset({"now", "today", "utcnow"})
_FILES = frozenset(
    {"fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap"}
    | {"save", "savetxt", "savez", "savez_compressed"}
)
_SEEDED = frozenset({"Generator", "default_rng"})


def impurities(source: str, path: str) -> list[str]:
    """Return what a module imports or calls that it may not, as `line: what`; `path` is from the root."""
    package = next(name for name in ALLOWED if path.startswith(f"{name}/"))
    allowed = ALLOWED[package] | ALSO.get(path, frozenset())
    tree = ast.parse(source)
    return [
        f"{node.lineno}: {what}"  # type: ignore[attr-defined]
        for node in ast.walk(tree)
        for what in (*_imports(node, allowed), *_reads(node, allowed))
    ]


def _imports(node: ast.AST, allowed: Set[str]) -> Iterator[str]:
    """Yield the imports of a statement that are not allowed."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules = ["." * node.level + (node.module or "")]
        if any(f"{modules[0]}.{alias.name}" in _RANDOM for alias in node.names):
            yield f"import {modules[0]}.random"
    else:
        return
    for module in modules:
        is_open = any(module.startswith(f"{each}.") for each in _OPEN & allowed)
        if module in _RANDOM or not (module in allowed or is_open):
            yield f"import {module}"


_RANDOM = frozenset({"numpy.random", "scipy.io"})


def _reads(node: ast.AST, allowed: Set[str]) -> Iterator[str]:
    """Yield what an expression reads from outside: a clock, a file, a random source, the local time zone."""
    if isinstance(node, ast.Attribute):
        owner = _last(node.value)
        is_clock = node.attr in _CLOCKS and owner in ("date", "datetime")
        is_file = node.attr in _FILES and owner in ("np", "numpy")
        is_draw = owner == "random" and node.attr not in _SEEDED
        if is_clock or is_file or is_draw:
            yield ast.unparse(node)
    if not isinstance(node, ast.Call):
        return
    name = _last(node.func)
    if isinstance(node.func, ast.Name) and name in _CALLS and name not in allowed:
        yield f"{name}()"
    elif name == "default_rng" and not node.args and not node.keywords:
        yield "default_rng() without a seed"
    elif name == "fromtimestamp" and len(node.args) + len(node.keywords) < 2:
        yield "fromtimestamp() without a time zone"


def _last(node: ast.AST) -> str:
    """Return the last name of a dotted expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
