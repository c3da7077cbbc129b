"""Scripts that stand outside the packages, as modules: benchmarks that tests call."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def benchmark_module(name: str) -> ModuleType:
    """Return benchmarks/NAME.py as a module, made anew."""
    return module_of(BENCHMARKS / f"{name}.py", f"benchmark_{name}")


def module_of(path: Path, name: str) -> ModuleType:
    """Return a file as a module of that name, made anew."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for themselves there.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
