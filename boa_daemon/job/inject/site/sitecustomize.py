"""Makes DDP, FSDP and ZeRO ask the gate; Python runs this at start-up (see `boa_daemon.job.inject`).

Nothing here may stop a job: a failure is logged in one line, and PyTorch stays as it is.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


class _Loader(importlib.abc.Loader):
    """Loads a module normally, then wraps it."""

    def __init__(self, inner: Any, wrap: Callable[[Any], None]) -> None:
        self._inner, self._wrap = inner, wrap

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module."""
        made: ModuleType | None = self._inner.create_module(spec)
        return made

    def exec_module(self, module: Any) -> None:
        """Run the module, then wrap it."""
        self._inner.exec_module(module)
        try:
            self._wrap(module)
        except Exception as fault:  # A job must not fail because the gate cannot be used.
            _say_off(fault)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds each module of `TARGETS` once, and has it wrapped."""

    def __init__(self) -> None:
        self._left = dict(TARGETS)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's spec with the loader above."""
        wrap = self._left.pop(name, None)
        if wrap is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, wrap)
        return spec


class _Own(importlib.abc.MetaPathFinder):
    """Finds this copy of `boa_daemon`, but nothing else in its folder, if the job's Python has none."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the package's spec; this finder is asked last."""
        if name != "boa_daemon":
            return None
        return importlib.util.spec_from_file_location(
            name, os.path.join(PACKAGE, "__init__.py"), submodule_search_locations=[PACKAGE]
        )


def _say_off(fault: Exception) -> None:
    """Write into the job's log that the gate is not used, and why."""
    from boa_daemon.job.log_line import log_line  # noqa: PLC0415 - only where something is wrong

    log_line(f"off, {fault}", speaker="boa gate")


def _wrap_ddp(module: Any) -> None:
    """Gate every new DDP model, unless its script registers a hook of its own."""
    ddp = module.DistributedDataParallel
    made, registered = ddp.__init__, ddp.register_comm_hook

    def init(self: Any, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        if type(self) is not ddp and type(self).__init__ is not init:
            return  # A subclass may register a hook of its own.
        try:
            from boa_daemon.job.torch_gate import hook_in  # noqa: PLC0415  # only where DDP is used

            hook_in(self)
        except Exception as fault:
            _say_off(fault)

    def register(self: Any, state: object, hook: Any) -> None:
        gating = sys.modules.get("boa_daemon.job.torch_gate")
        if gating is None or not gating.make_way(self, state, hook):
            registered(self, state, hook)

    ddp.__init__, ddp.register_comm_hook = init, register


def _wrap_shards(module: Any) -> None:
    """Gate the collectives of FSDP and of ZeRO's optimizer."""
    from boa_daemon.job.torch_collectives import put_into  # noqa: PLC0415  # only where they are used

    put_into(module)


TARGETS: dict[str, Callable[[Any], None]] = {
    "torch.nn.parallel.distributed": _wrap_ddp,
    "torch.distributed.fsdp._fully_shard._fsdp_collectives": _wrap_shards,
    "torch.distributed.fsdp._flat_param": _wrap_shards,
    "torch.distributed.fsdp._runtime_utils": _wrap_shards,
    "torch.distributed.optim.zero_redundancy_optimizer": _wrap_shards,
}


def _run_the_one_behind() -> None:
    """Run the `sitecustomize` that this one hides, if there is one."""
    behind = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", behind)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.append(_Own())
if os.environ.get("BOA_GATE") and os.environ.get("BOA_NODES", "") != "1":
    sys.meta_path.insert(0, _Finder())
_run_the_one_behind()
