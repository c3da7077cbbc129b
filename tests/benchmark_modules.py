"""Loads scripts outside the packages, such as benchmarks, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def benchmark_module(name: str) -> ModuleType:
    """Return benchmarks/NAME.py as a newly loaded module."""
    return module_of(BENCHMARKS / f"{name}.py", f"benchmark_{name}")


def module_of(path: Path, name: str) -> ModuleType:
    """Return a file as a newly loaded module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their own module in sys.modules.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
