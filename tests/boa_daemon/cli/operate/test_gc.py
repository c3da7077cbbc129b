"""`boa gc` on the simulated cloud: a leak is what no daemon wants, and nothing else ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from boa_daemon.backends.aws.instances.receipt import KINDS, Receipt
from boa_daemon.backends.aws.instances.sweep import OwnedResource
from boa_daemon.cli.common.output import OutputFormat
from boa_daemon.cli.operate import gc as verb
from boa_daemon.cli.operate.gc import gc
from boa_daemon.errors import DRIFT_FOUND


def a_node(name: str, leak: str = "") -> OwnedResource:
    """Return a node, which is a leak for this reason."""
    return OwnedResource(
        kind="instance", id=name, region="simulated", leak=leak, since=0.0, instance_type="m"
    )


class Cloud:
    """What is there, and what was told to end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *nodes: OwnedResource) -> None:
        self.nodes, self.ended = nodes, list[str]()
        monkeypatch.setattr(verb, "simulated_settings", lambda _config: "settings")
        monkeypatch.setattr(verb, "find_simulated", lambda _settings: list(nodes))
        monkeypatch.setattr(verb, "end_simulated", self.end)

    def end(self, _settings: Any, which: Any) -> Receipt:
        """End nodes."""
        self.ended += sorted(which)
        return Receipt(
            region="simulated", left=dict.fromkeys(KINDS, 0), ended=len(which), stopped_at=None, failed={}
        )


def answer(capsys: pytest.CaptureFixture[str], **flags: Any) -> dict[str, Any]:
    """Return the answer as JSON."""
    gc(config=Path("boa.toml"), output=OutputFormat.json, **flags)
    return dict(json.loads(capsys.readouterr().out))


def test_only_leaks_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What a daemon wants is counted."""
    cloud = Cloud(monkeypatch, a_node("n1"), a_node("n2", "nobody wants it"), a_node("n3"))
    found = answer(capsys)
    assert cloud.ended == ["n2"]
    assert ([row["id"] for row in found["leaks"]], found["wanted"]) == (["n2"], 2)
    assert found["leaks"][0]["leak"] == "nobody wants it"


def test_a_check_ends_nothing_and_tells_of_leaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its exit code; without leaks all is well."""
    cloud = Cloud(monkeypatch, a_node("n1"), a_node("n2", "nobody wants it"))
    with pytest.raises(typer.Exit) as found:
        answer(capsys, check=True)
    assert found.value.exit_code == DRIFT_FOUND
    capsys.readouterr()
    assert answer_of(monkeypatch, capsys)["leaks"] == []
    assert cloud.ended == []


def answer_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the check of a cloud without leaks."""
    Cloud(monkeypatch, a_node("n1"))
    return answer(capsys, check=True)
