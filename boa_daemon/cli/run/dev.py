"""``boa dev``: rent a node for interactive work, with several limits that end it.

The node runs a job whose command waits. Any one of these ends the job: its limit in hours or dollars, which
the daemon enforces; the end of its shell, which `boa dev` sees; an idle time without an open shell, or its
hours, which the job's command enforces alone. A node without a daemon ends when its lease expires.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.common.output import OutputFormat, OutputOption
from boa_daemon.cli.common.terminal import is_on_terminal
from boa_daemon.cli.run.run import JobRun, WaitOption, run_to_receipt
from boa_daemon.cli.run.run_screen import Screen
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.submission import as_submitted

READY = "ready: boa shell"
LATE_SECONDS = 60.0
"""Seconds after its hours at which the job's command ends by itself, if the daemon has not ended it."""
_WAIT = """echo "{ready} $BOA_JOB_ID"
inside=$(dirname "$BOA_PROGRESS_FILE")/inside
trap 'exit 0' TERM
while [ $SECONDS -lt {seconds:.0f} ]; do
  left=$SECONDS
  seen=$(stat -c %Y "$inside" 2>/dev/null) && left=$(( $(date +%s) - seen ))
  if [ $left -ge {idle:.0f} ]; then echo "nobody was inside for $left s: it ends"; exit 0; fi
  sleep {pause:g} & wait $!
done
echo "its hours are over"
"""
"""The job's command: wait, and check that somebody uses the node."""


def dev(
    *,
    hours: Annotated[float, typer.Option(min=0.001, help="Hours after which the node is given back.")],
    max_usd: Annotated[float, typer.Option(min=0.01, help="Most dollars that it may cost.")],
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of the node.")] = 1,
    class_name: Annotated[
        str, typer.Option("--class", help="Job class whose machine types may be rented.")
    ] = "default",
    code: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of code to copy to the node, without what git ignores."),
    ] = None,
    image: Annotated[str | None, typer.Option(help="Container image to work in.")] = None,
    idle_minutes: Annotated[
        float, typer.Option(min=0.05, help="Minutes without an open shell after which it ends.")
    ] = 30.0,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "dev",
    shell: Annotated[
        bool,
        typer.Option("--shell/--no-shell", help="Open a shell on the node, and end the job with the shell."),
    ] = True,
    config: ConfigOption = None,
    socket: SocketOption = None,
    wait_seconds: WaitOption = 600.0,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Rent a node for interactive work; it ends after --hours, --max-usd, or when left idle.

    On a terminal a shell opens, and the node is given back when the shell ends. Without a terminal, or with
    --no-shell, the node runs until Ctrl-C. The receipt shows the cost; exit codes are those of `boa run`.
    """
    content = dev_job(
        name=name, class_name=class_name, gpus=gpus, hours=hours, max_usd=max_usd,
        idle_seconds=60.0 * idle_minutes, code=code, image=image,
    )  # fmt: skip
    words = [*(("--config", str(config)) if config else ()), *(("--socket", socket) if socket else ())]
    one = DevSession(
        content=content,
        max_usd=max_usd,
        screen=Screen(is_quiet=output is not OutputFormat.table, max_usd=max_usd),
        wait_seconds=wait_seconds,
        shell_words=tuple(words),
        has_shell=shell and is_on_terminal(),
    )
    run_to_receipt(one, config, socket, form=output)


def dev_job(
    *,
    name: str,
    class_name: str,
    gpus: int,
    hours: float,
    max_usd: float,
    idle_seconds: float,
    code: Path | None = None,
    image: str | None = None,
) -> Mapping[str, Any]:
    """Return the job file of a development node.

    Raises:
        InputError: when the code folder or the image name is not valid.
    """
    pause = min(max(idle_seconds / 10.0, 0.2), 10.0)
    wait = _WAIT.format(ready=READY, seconds=3600.0 * hours + LATE_SECONDS, idle=idle_seconds, pause=pause)
    content: dict[str, Any] = {
        "name": name,
        "class": class_name,
        "run": f"exec bash -c {quote(wait)}",
        "min_gpus": gpus,
        "max_gpus": gpus,
        "max_hours": hours,
        "max_usd": max_usd,
        "retries": 0,
        "stop_grace_seconds": 10.0,
    }
    if code is not None:
        content["code"] = str(code)
    if image is not None:
        content["image"] = image
    return as_submitted(Document(name="boa dev", content=content), beside=Path.cwd())[0]


@dataclass(slots=True, kw_only=True)
class DevSession(JobRun):
    """A run whose job only waits: a shell opens once the node is ready, and the run ends with the shell."""

    shell_words: tuple[str, ...] = ()
    has_shell: bool = True
    _shell: subprocess.Popen[bytes] | None = None
    _is_told: bool = False
    _was_quiet: bool = False
    _is_left: bool = False

    def has_ended_well(self, receipt: Mapping[str, Any]) -> bool:
        """Return whether the job finished, or was cancelled because the shell ended."""
        return self._is_left or JobRun.has_ended_well(self, receipt)

    def _visit(self, name: str) -> None:
        """Open the shell once the node is there; end the job when the shell has ended."""
        if not self.phases.found or self.phases.found[-1].name != "running" or self._is_over():
            return
        if not self.has_shell:
            if not self._is_told:
                self.screen.note(f"boa shell {name}, boa exec {name} -- COMMAND; Ctrl-C ends it")
            self._is_told = True
            return
        if self._shell is None:
            self.screen.is_quiet, self._was_quiet = True, self.screen.is_quiet
            words = [sys.executable, "-m", "boa_daemon", "shell", name, *self.shell_words]
            self._shell = subprocess.Popen(words, env=os.environ)
        elif self._shell.poll() is not None and not self._is_left:
            self.screen.is_quiet, self._is_left = self._was_quiet, True
            self._order(f"/jobs/{name}/cancel")
