"""A fake SSM that runs the scripts sent to a node on this machine, with stand-ins for systemd and `aws`.

So tests run the real scripts, with the same supervisor from the same bundle and the same unit names. Only
`systemd-run`, `systemctl` and `aws` (`boa_daemon.testing.shims`) and the commands for disks
(`boa_daemon.testing.fake_disks`) are stand-ins, first in the scripts' PATH. Each node has its own folders, so
nodes exchange data through S3 only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boa_daemon.testing.fake_disks import STORE, stand_ins

COMMANDS = ("systemd-run", "systemctl", "aws")
NVIDIA_SMI = """#!/bin/bash
if [ -e "$HOME/nvidia-smi" ]; then cat "$HOME/nvidia-smi"; exit 0; fi
for ((i = 0; i < ${BOA_FAKE_GPUS:-8}; i++)); do echo "$i, 570.172.08, 0, 0"; done
"""
DMESG = """#!/bin/bash
if [ -e "$HOME/dmesg" ]; then cat "$HOME/dmesg"; fi
"""
SUDO = """#!/bin/bash
exec "$@"
"""
PYTHON = """#!/bin/bash
if [ "$1 $2" = "-m pip" ]; then echo "$@" >> "$HOME/pip"; exit 0; fi
exec @PYTHON@ "$@"
"""
"""Stand-ins that show the type's number of GPUs and an empty kernel log; a file in the node's home replaces
their output. The stand-in of pip installs nothing and only logs its arguments.
"""


class NoSuchInstance(Exception):
    """InvalidInstanceId: the instance is not known to SSM."""


class FakeSsm:
    """Implements the client that `SsmEngine` uses. `gone` are ended nodes, whose processes were killed.

    Jobs run as this process's user; with `users` they keep the users that the engine gives them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        environment: Mapping[str, str],
        rewrite: Callable[[str, str], str] = lambda node, script: script,
        gpus_of: Callable[[str], int] = lambda node: 8,
        disks_of: Callable[[str], int] = lambda node: 0,
        users: bool = False,
        python: str = sys.executable,
    ) -> None:
        self._folder, self._environment = folder, dict(environment)
        self._rewrite, self._gpus_of, self._users, self._python = rewrite, gpus_of, users, python
        self._disks_of = disks_of
        self._shims = folder / "shims"
        self._running: dict[tuple[str, str], tuple[subprocess.Popen[bytes], Path]] = {}
        self.gone: set[str] = set()
        self.sent: list[tuple[str, tuple[str, ...]]] = []
        self._write_shims()

    def _write_shims(self) -> None:
        self._shims.mkdir(parents=True, exist_ok=True)
        here = Path(__file__).parent.parent.parent
        for name in COMMANDS:
            file = self._shims / name
            # A plain file without site packages: each heartbeat runs three of these, and numpy loads slowly.
            program = f"{self._python} -S -P {here / 'boa_daemon' / 'testing' / 'shims.py'} {name}"
            file.write_text(f'#!/bin/bash\nPYTHONPATH={here} exec {program} "$@"\n')
            file.chmod(0o755)
        plain = {"nvidia-smi": NVIDIA_SMI, "dmesg": DMESG, "sudo": SUDO, **stand_ins()}
        for name, script in plain.items():
            (self._shims / name).write_text(script)
            (self._shims / name).chmod(0o755)
        python = self._shims / "python3"
        if not python.exists():
            python.write_text(PYTHON.replace("@PYTHON@", self._python))
            python.chmod(0o755)

    def environment_of(self, node: str) -> dict[str, str]:
        """Return the environment of all processes of a node."""
        home = self._folder / node
        (home / "units").mkdir(parents=True, exist_ok=True)
        return {
            "PATH": f"{self._shims}:{os.environ['PATH']}",
            "HOME": str(home),
            "BOA_FAKE_NODE": node,
            "BOA_FAKE_UNITS": str(home / "units"),
            "BOA_FAKE_GPUS": str(self._gpus_of(node)),
            "BOA_FAKE_DISKS": str(self._disks_of(node)),
            "BOA_STORE": str(home / STORE),
            **self._environment,
        }

    def send_command(self, **request: Any) -> Mapping[str, Any]:
        """Run a script on nodes in the background, as SSM does.

        Raises:
            NoSuchInstance: when a node is gone.
        """
        command = f"{len(self.sent):08x}-0000-4000-8000-000000000000"
        for node in request["InstanceIds"]:
            if node in self.gone:
                raise NoSuchInstance(f"InvalidInstanceId: {node}")
        self.sent.append((request["Comment"], tuple(request["InstanceIds"])))
        for node in request["InstanceIds"]:
            environment = self.environment_of(node)
            output = self._folder / node / f"{command}.out"
            script = self._folder / node / f"{command}.sh"
            text = self._rewrite(node, "\n".join(request["Parameters"]["commands"]))
            script.write_text(text if self._users else re.sub('"uid": [0-9]+', '"uid": null', text))
            script.chmod(0o700)
            with output.open("wb") as file:
                process = subprocess.Popen(
                    # As the agent does: a first line that names another interpreter counts.
                    ["/bin/sh", *(["-c"] if text.startswith("#!") else []), str(script)],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self._running[command, node] = (process, output)
        return {"Command": {"CommandId": command}}

    def get_command_invocation(self, **request: Any) -> Mapping[str, Any]:
        """Return the result of a command on a node, with the first 24,000 characters of output as in SSM.

        Raises:
            NoSuchInstance: when the node is gone.
        """
        node = request["InstanceId"]
        if node in self.gone:
            raise NoSuchInstance(f"InvalidInstanceId: {node}")
        process, output = self._running[request["CommandId"], node]
        code = process.poll()
        status = "InProgress" if code is None else "Success" if code == 0 else "Failed"
        return {"Status": status, "StandardOutputContent": output.read_text(errors="replace")[:24_000]}

    def end(self, node: str) -> None:
        """Remove a node and kill its processes."""
        from boa_daemon.job.processes import kill_all_carrying  # noqa: PLC0415

        self.gone.add(node)
        # Match the folder, not the name: another test on this machine may have a node of that name.
        kill_all_carrying(f"BOA_FAKE_UNITS={self._folder / node / 'units'}")

    def close(self) -> None:
        """End all processes and wait for them."""
        for node in {node for _, node in self._running}:
            self.end(node)
        for process, _ in self._running.values():
            process.wait()
