"""Notifications to systemd, and the unit that installs the service.

The protocol is a datagram of lines to the socket in `NOTIFY_SOCKET` (sd_notify(3)). Nothing happens when no
systemd listens. Call `notify_alive` at the end of each tick, failed ticks included, and never from a thread
of its own: systemd must notice a loop that hangs.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path

from boa_daemon.errors import BoaError, InputError
from boa_daemon.job.whole_files import write_whole

UNIT = "boa-daemon.service"
UNIT_FOLDER = Path("/etc/systemd/system")
HIDDEN = ("/home", "/root", "/tmp", "/var/tmp", "/run/user")
"""Folders that ProtectHome and PrivateTmp hide from the service."""
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def notify_ready(status: str) -> None:
    """Notify that the service is ready; with Type=notify its start is complete now."""
    _say("READY=1", _status(status))


def notify_alive(status: str) -> None:
    """Reset the watchdog, and report a status line."""
    _say("WATCHDOG=1", _status(status))


def notify_reloading() -> None:
    """Notify that the settings are being reloaded; `notify_ready` ends the reload."""
    _say("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def notify_stopping() -> None:
    """Notify that the service is stopping."""
    _say("STOPPING=1", _status("stopping; jobs and instances go on"))


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the seconds within which `notify_alive` is due; None without a watchdog."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    micro = environment.get("WATCHDOG_USEC", "")
    return int(micro) / 1e6 if micro.isdigit() and int(micro) > 0 else None


def check_tick(tick_seconds: float, environment: Mapping[str, str] = os.environ) -> None:
    """Check that ticks come often enough for the watchdog.

    Raises:
        InputError: when two ticks take longer than the watchdog waits.
    """
    limit = watchdog_seconds(environment)
    if limit is not None and 2.0 * tick_seconds > limit:
        raise InputError(
            f"tick_seconds {tick_seconds:g} is too long: the watchdog waits {limit:g} s, and a tick that "
            "is late must not be taken for one that hangs",
            hint=f"Set tick_seconds to {limit / 2.0:g} or less, or WatchdogSec of {UNIT} to more",
        )


def unit_text(program: str | None = None) -> str:
    """Return the text of the unit, with the path of `program`, by default this one.

    Raises:
        InputError: when systemd could not start the program, or the hardened service cannot see it.
    """
    words = [program] if program else [shutil.which("boa") or sys.executable]
    if not program and not shutil.which("boa"):
        words += ["-m", "boa_daemon"]
    path = os.path.abspath(words[0])
    hidden = next((root for root in HIDDEN if path.startswith(f"{root}/")), None)
    if hidden is not None:
        raise InputError(
            f"{path} is in {hidden}, which the hardened service cannot see",
            hint="Install BOA for the whole system, for instance in /opt/boa, and name it with --program",
        )
    command = " ".join((_quoted(path), *words[1:]))
    text = (resources.files("boa_daemon") / "data" / UNIT).read_text(encoding="utf-8")
    return text.replace("ExecStart=/usr/local/bin/boa", f"ExecStart={command}")


def install_unit(text: str, folder: Path = UNIT_FOLDER) -> Path:
    """Write the unit atomically, and return its path.

    Raises:
        BoaError: when the folder cannot be written.
    """
    target = folder / UNIT
    try:
        write_whole(target, text, mode=0o644)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BoaError(
            f"cannot write {target}: {reason}. Nothing was changed. Run it as root, or --print it"
        ) from None
    return target


def _quoted(path: str) -> str:
    """Quote the path of a program for a systemd command line.

    A percent sign is doubled and a dollar is not: systemd replaces no variables in the path of a program.

    Raises:
        InputError: when systemd accepts no program with this path.
    """
    if not path.isprintable() or any(sign in path for sign in "\"'\\"):
        raise InputError(
            f"{path!r} has a quote, a backslash or a control character, which systemd refuses in a program",
            hint="Install BOA in a folder without them, for instance in /opt/boa, and name it with --program",
        )
    path = path.replace("%", "%%")
    return path if _PLAIN.fullmatch(path) else f'"{path}"'


def _status(line: str) -> str:
    """Return a status assignment on one line."""
    return f"STATUS={' '.join(line.split())}"


def _say(*lines: str) -> None:
    """Send lines to systemd, if it listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.settimeout(1.0)
        channel.connect(address)
        channel.sendall("\n".join(lines).encode())
