"""`engines/ssm_commands.py`: why no command reaches a node is known while it is so, and no longer."""

from __future__ import annotations

import time
from typing import Any

import pytest

from boa_daemon.engines.ssm_commands import FAULT_SECONDS, SsmCommands


class Ssm:
    """An SSM that fails with what it is told to."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def send_command(self, **request: Any) -> dict[str, Any]:
        """Take a command."""
        if self.error is not None:
            raise self.error
        return {"Command": {"CommandId": "c"}}

    def get_command_invocation(self, **request: Any) -> dict[str, Any]:
        """Answer."""
        if self.error is not None:
            raise self.error
        return {"Status": "Success"}


def test_a_failed_request_is_a_fault_until_another_succeeds_or_nobody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that SSM does not know is none; after minutes without a request nothing is known."""
    ssm, now = Ssm(), [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    commands = SsmCommands(ssm)  # type: ignore[arg-type]
    assert commands.fault == ""
    ssm.error = OSError("InvalidInstanceId: i-1 is not known")
    commands.send(["i-1"], "true", "x")
    assert commands.fault == ""
    ssm.error = OSError("ExpiredToken")
    commands.send(["i-1"], "true", "x")
    assert "ExpiredToken" in commands.fault
    ssm.error = None
    commands.result("c", "i-1")
    assert commands.fault == ""
    ssm.error = OSError("ExpiredToken")
    commands.result("c", "i-1")
    assert "ExpiredToken" in commands.fault
    now[0] += FAULT_SECONDS + 1.0
    assert commands.fault == ""
