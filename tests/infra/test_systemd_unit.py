"""infra/systemd: the unit that is shipped, against systemd's own tools and the code that it serves."""

from __future__ import annotations

import re
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path

import pytest

from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.systemd import UNIT, check_tick, unit_text

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "infra" / "systemd" / UNIT
WORST_SCORE = 2.0


class Lines(RawConfigParser):
    """A parser that keeps the case of keys and the last value of those that are said twice."""

    def optionxform(self, optionstr: str) -> str:
        """Return the key as it is."""
        return optionstr


def parsed() -> Lines:
    """Return the unit."""
    found = Lines(strict=False, interpolation=None)
    found.read_string(FILE.read_text(encoding="utf-8"))
    return found


def test_the_package_ships_the_same_unit() -> None:
    """`boa systemd` prints what stands in infra/, but for the path of the program."""
    assert unit_text("/usr/local/bin/boa") == FILE.read_text(encoding="utf-8")
    assert "ExecStart=/opt/boa/bin/boa daemon" in unit_text("/opt/boa/bin/boa")


def test_it_is_a_notifying_service_with_a_watchdog_and_a_limit_on_restarts() -> None:
    """READY after the first reconcile, a sign from each tick, HUP reloads, a stop leaves jobs alone."""
    unit, service = parsed()["Unit"], parsed()["Service"]

    assert (service["Type"], service["NotifyAccess"], service["DynamicUser"]) == ("notify", "main", "yes")
    assert (service["StateDirectory"], service["RuntimeDirectory"]) == ("boa", "boa")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert (service["Restart"], service["KillMode"]) == ("on-failure", "process")
    assert int(unit["StartLimitBurst"]) * float(service["RestartSec"]) < float(unit["StartLimitIntervalSec"])


def test_ticks_as_shipped_are_fast_enough_for_the_watchdog() -> None:
    """The default of tick_seconds fits WatchdogSec of the unit twice."""
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
        "PrivateUsers=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "RestrictNamespaces=yes",
        "MemoryDenyWriteExecute=yes",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged @resources",
        "UMask=0077",
    ],
)
def test_it_is_hardened(line: str) -> None:
    """Each of these lines is worth points of exposure."""
    assert line in FILE.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("tool", [shutil.which("systemd-analyze") or ""])
def test_systemd_finds_nothing_wrong_and_little_exposed(tool: str, tmp_path: Path) -> None:
    """`systemd-analyze verify` is silent and `security` says 2.0 or better, where they are installed."""
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
