"""infra/systemd: the shipped unit, checked with systemd's own tools and against the code that it serves."""

from __future__ import annotations

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from boa_daemon.daemon.loop.systemd import UNIT, check_tick, unit_text
from boa_daemon.daemon.settings.config import Settings

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "infra" / "systemd" / UNIT
WORST_SCORE = 2.0


class Lines(RawConfigParser):
    """A parser that keeps the case of keys; the last value of a repeated key wins."""

    def optionxform(self, optionstr: str) -> str:
        """Return the key unchanged."""
        return optionstr


def parsed() -> Lines:
    """Return the parsed unit file."""
    found = Lines(strict=False, interpolation=None)
    found.read_string(FILE.read_text(encoding="utf-8"))
    return found


def test_boa_systemd_prints_the_unit_of_infra() -> None:
    """`boa systemd` prints the file of infra/ with the path of the program replaced."""
    assert unit_text("/usr/local/bin/boa") == FILE.read_text(encoding="utf-8")
    assert "ExecStart=/opt/boa/bin/boa daemon" in unit_text("/opt/boa/bin/boa")


def test_the_unit_notifies_reloads_on_hup_and_limits_restarts() -> None:
    """systemd waits for READY; HUP reloads; a stop leaves jobs alone; restarts are limited."""
    unit, service = parsed()["Unit"], parsed()["Service"]
    # An end by SIGHUP counts as clean, after which `on-failure` starts nothing.
    assert service["RestartForceExitStatus"] == "SIGHUP"

    assert (service["Type"], service["NotifyAccess"], service["DynamicUser"]) == ("notify", "main", "yes")
    assert (service["StateDirectory"], service["RuntimeDirectory"]) == ("boa", "boa")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert (service["Restart"], service["KillMode"]) == ("on-failure", "process")
    assert int(unit["StartLimitBurst"]) * float(service["RestartSec"]) < float(unit["StartLimitIntervalSec"])


def test_the_default_tick_is_short_enough_for_the_watchdog() -> None:
    """The default of tick_seconds fits twice into WatchdogSec of the unit."""
    micro = int(float(parsed()["Service"]["WatchdogSec"]) * 1e6)

    check_tick(Settings().daemon.tick_seconds, {"WATCHDOG_USEC": str(micro)})


@pytest.mark.parametrize(
    "line",
    [
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateDevices=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "RestrictNamespaces=yes",
        "MemoryDenyWriteExecute=yes",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged @resources",
        "UMask=0077",
    ],
)
def test_the_unit_has_each_line_of_hardening(line: str) -> None:
    """Each of these lines improves the score of `systemd-analyze security`."""
    assert line in FILE.read_text(encoding="utf-8").splitlines()


def test_the_unit_lets_the_daemon_tell_its_callers_apart() -> None:
    """In a user namespace of its own it would see all but root as one user."""
    assert "PrivateUsers" not in parsed()["Service"]


@pytest.mark.parametrize("tool", [shutil.which("systemd-analyze") or ""])
def test_systemd_analyze_accepts_the_unit_and_its_exposure(tool: str, tmp_path: Path) -> None:
    """`systemd-analyze verify` is silent and `security` gives at most 2.0, if the tool is installed."""
    if not tool:
        assert FILE.is_file()
        return
    unit = tmp_path / UNIT
    unit.write_text(unit_text(shutil.which("true")), encoding="utf-8")
    said = subprocess.run(
        [tool, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    scored = subprocess.run(
        [tool, "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "SYSTEMD_COLORS": "0"},
    )
    score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", scored.stdout)

    assert UNIT not in said.stderr
    assert score is not None, scored.stderr
    assert float(score[1]) <= WORST_SCORE
