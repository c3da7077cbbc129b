"""`job/inject/site/sitecustomize.py`: which modules of a job are wrapped, and that nothing stops the job."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import boa_daemon.job.inject
from boa_daemon.job import inject

FILE = Path(inject.__file__).parent / "site" / "sitecustomize.py"
DDP = "torch.nn.parallel.distributed"


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Return what starts a Python of a job, whose path has one folder; Python's own finders are kept."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", [str(FILE.parent), str(tmp_path)])

    def start(**environment: str) -> ModuleType:
        for name in ("BOA_GATE", "BOA_NODES"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        spec = importlib.util.spec_from_file_location("of_a_job", FILE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return start


@pytest.mark.parametrize(
    ("environment", "is_hooked"),
    [
        ({}, False),
        ({"BOA_GATE": "unix:/a"}, True),
        ({"BOA_GATE": "unix:/a", "BOA_NODES": "2"}, True),
        ({"BOA_GATE": "unix:/a", "BOA_NODES": "1"}, False),
        ({"BOA_NODES": "2"}, False),
    ],
)
def test_only_jobs_over_nodes_with_a_gate_are_hooked(
    started: Any, environment: dict[str, str], is_hooked: bool
) -> None:
    """Others import PyTorch as it is; this copy of boa_daemon is asked for last by all."""
    module = started(**environment)
    first, last = type(sys.meta_path[0]).__name__, sys.meta_path[-1]
    assert (first == "_Finder", isinstance(last, module._Own)) == (is_hooked, True)
    assert last.find_spec("boa_daemon").origin == boa_daemon.__file__
    assert (last.find_spec("torch"), last.find_spec("boa_daemon.job")) == (None, None)


def test_a_module_is_wrapped_once_when_it_is_imported(
    started: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault of the wrap is a line in the log; the module is whole."""
    wrapped: list[str] = []
    module = started(BOA_GATE="unix:/a")

    def wrap(found: ModuleType) -> None:
        wrapped.append(found.VALUE)
        raise RuntimeError("no gate")

    (tmp_path / "a_target.py").write_text("VALUE = 'whole'\n")
    monkeypatch.setitem(module.TARGETS, "a_target", wrap)
    finder = module._Finder()
    spec = finder.find_spec("a_target")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert (wrapped, loaded.VALUE) == (["whole"], "whole")
    assert capsys.readouterr().err == "boa gate: off, no gate\n"
    assert (finder.find_spec("a_target"), finder.find_spec("other")) == (None, None)
    assert DDP in module.TARGETS


class Gating:
    """`torch_gate`, which hooks models in and makes way for hooks of scripts."""

    def __init__(self, *, makes_way: bool = False) -> None:
        self.hooked: list[Any] = []
        self.makes_way = makes_way

    def hook_in(self, model: Any) -> None:
        """Note a model."""
        self.hooked.append(model)

    def make_way(self, model: Any, state: object, hook: Any) -> bool:
        """Return whether the script's hook was put behind the gate's."""
        return self.makes_way


def a_ddp(module: ModuleType) -> Any:
    """Return a DDP class that is wrapped; it notes the hooks that are registered."""

    class DistributedDataParallel:
        def __init__(self, name: str) -> None:
            self.name, self.hooks = name, list[Any]()

        def register_comm_hook(self, state: object, hook: Any) -> None:
            self.hooks.append(hook)

    module.TARGETS[DDP](SimpleNamespace(DistributedDataParallel=DistributedDataParallel))
    return DistributedDataParallel


def test_new_models_ask_the_gate_and_a_subclass_with_its_own_start_does_not(
    started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may register a hook of its own."""
    gating = Gating()
    monkeypatch.setitem(sys.modules, "boa_daemon.job.torch_gate", gating)  # type: ignore[arg-type]
    monkeypatch.setattr(boa_daemon.job, "torch_gate", gating, raising=False)
    ddp = a_ddp(started())

    class Plain(ddp):  # type: ignore[misc,valid-type]
        pass

    class Own(ddp):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            super().__init__("own")

    made = [ddp("a"), Plain(name="b"), Own()]
    assert gating.hooked == made[:2]
    assert [model.name for model in made] == ["a", "b", "own"]


def test_a_hook_of_the_script_is_registered_unless_the_gate_has_made_way(
    started: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the gate cannot be used, training goes on as without it."""
    module = started()
    for gating, hooks in ((Gating(), ["h"]), (Gating(makes_way=True), []), (None, ["h"])):
        if gating is None:
            monkeypatch.delitem(sys.modules, "boa_daemon.job.torch_gate", raising=False)
        else:
            monkeypatch.setitem(sys.modules, "boa_daemon.job.torch_gate", gating)  # type: ignore[arg-type]
        model = a_ddp(module).__new__(a_ddp(module))
        model.hooks = []
        type(model).register_comm_hook(model, None, "h")
        assert model.hooks == hooks
    broken = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "boa_daemon.job.torch_gate", broken)  # type: ignore[arg-type]
    monkeypatch.setattr(boa_daemon.job, "torch_gate", broken, raising=False)
    assert a_ddp(module)("a").name == "a"
    assert capsys.readouterr().err.startswith("boa gate: off, ")


def test_the_sitecustomize_behind_this_one_runs(started: Any, tmp_path: Path) -> None:
    """A cluster's own is not lost; without one nothing fails."""
    started()
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.behind_ran = True\n")
    try:
        started()
        assert sys.behind_ran  # type: ignore[attr-defined]
    finally:
        vars(sys).pop("behind_ran", None)
