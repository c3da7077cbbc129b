"""The table of engine kinds."""

from __future__ import annotations

from boa_daemon.backends.cloud_kinds import CLOUD_KINDS
from boa_daemon.daemon.loop.assembly import ENGINES
from boa_daemon.engines.engine_kinds import ENGINE_KINDS, EngineKind, engine_kind, fitting


def test_every_engine_has_a_kind_and_every_cloud_has_an_engine() -> None:
    """Each kind names only existing clouds."""
    assert ENGINE_KINDS.keys() == ENGINES.keys()
    named = {name for kind in ENGINE_KINDS.values() for name in kind.goes_with or ()}
    assert named == CLOUD_KINDS.keys()
    assert {name: sorted(fitting(name)) for name in CLOUD_KINDS} == {
        "aws": ["ray", "ssm"], "simulated": ["local", "ray"], "local": ["local", "ray"],
        "slurm": ["slurm"],
    }  # fmt: skip


def test_an_engine_of_a_plug_in_gets_the_default_kind() -> None:
    """The table does not know the clouds of a plug-in's engine."""
    assert engine_kind("theirs") == EngineKind()
    assert engine_kind("theirs").goes_with is None
