"""What each engine is: one line for each that can be opened, and none for another."""

from __future__ import annotations

from boa_daemon.backends.cloud_kinds import CLOUD_KINDS
from boa_daemon.daemon.assembly import ENGINES
from boa_daemon.engines.engine_kinds import ENGINE_KINDS, EngineKind, engine_kind, fitting


def test_every_engine_that_can_be_opened_has_a_line() -> None:
    """And goes with clouds that there are; each cloud has an engine."""
    assert ENGINE_KINDS.keys() == ENGINES.keys()
    named = {name for kind in ENGINE_KINDS.values() for name in kind.goes_with or ()}
    assert named == CLOUD_KINDS.keys()
    assert {name: sorted(fitting(name)) for name in CLOUD_KINDS} == {
        "aws": ["ray", "ssm"], "simulated": ["local", "ray"], "local": ["local", "ray"],
    }  # fmt: skip


def test_an_engine_of_a_plug_in_is_as_processes_here() -> None:
    """Nothing is known of it: it says with what it goes when it is opened."""
    assert engine_kind("theirs") == EngineKind()
    assert engine_kind("theirs").goes_with is None
