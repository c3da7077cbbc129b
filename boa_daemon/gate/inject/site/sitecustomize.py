"""Run by Python at start-up where `boa_daemon.gate.inject` put it: have DDP models ask the gate.

Nothing here may stop a job: what fails says so in one line and leaves DDP as it is.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

TARGET = "torch.nn.parallel.distributed"
HERE = os.path.dirname(os.path.abspath(__file__))


class _Loader(importlib.abc.Loader):
    """Loads DDP's module as it would have been, then wraps the class."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module."""
        made: ModuleType | None = self._inner.create_module(spec)
        return made

    def exec_module(self, module: Any) -> None:
        """Run the module, and wrap what it defines."""
        self._inner.exec_module(module)
        _wrap(module.DistributedDataParallel)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds DDP's module, once."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec with the loader above."""
        if name != TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def _wrap(ddp: Any) -> None:
    """Have every new model ask the gate."""
    made = ddp.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        if type(self) is not ddp and type(self).__init__ is not init:
            return  # A subclass may register a hook of its own.
        try:
            from boa_daemon.job.torch_gate import gate  # noqa: PLC0415  # only where DDP is used
        except ImportError as fault:
            print(f"boa gate: off, {fault}", file=sys.stderr)  # noqa: T201  # the job's own log is the place
            return
        gate(self)

    ddp.__init__ = init


def _run_the_one_behind() -> None:
    """Run the `sitecustomize` that this one stands in front of, if there is one."""
    behind = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("BOA_GATE"):
    sys.meta_path.insert(0, _Finder())
_run_the_one_behind()
