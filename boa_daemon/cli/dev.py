"""``boa dev``: a node to work on that always ends.

It is a job whose command waits. Five things end it, and each alone is enough: its hours and its dollars,
which the daemon counts; its shell, with this command; nobody in it for a while, and its hours once more, by
its own command, which needs neither of the two. A node without any daemon ends by its lease.
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

from boa_daemon.cli.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.output import OutputFormat, OutputOption
from boa_daemon.cli.run import JobRun, WaitOption, run_to_receipt
from boa_daemon.cli.run_screen import Screen
from boa_daemon.cli.terminal import is_on_terminal
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.submission import as_submitted

READY = "ready: boa shell"
LATE_SECONDS = 60.0
"""Its command ends so long after its hours, where no daemon has ended it by then."""
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
"""What its command does: it waits, and looks who is inside."""


def dev(
    *,
    hours: Annotated[float, typer.Option(min=0.001, help="Hours after which it ends.")],
    max_usd: Annotated[float, typer.Option(min=0.01, help="Dollars that it may cost at the most.")],
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that it has.")] = 1,
    class_name: Annotated[
        str, typer.Option("--class", help="The class whose machines it may have.")
    ] = "default",
    code: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder to bring, without what git ignores.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="A container image to be in.")] = None,
    idle_minutes: Annotated[
        float, typer.Option(min=0.05, help="Minutes with nobody inside after which it ends.")
    ] = 30.0,
    name: Annotated[str, typer.Option(help="The name of its job.")] = "dev",
    shell: Annotated[
        bool, typer.Option("--shell/--no-shell", help="Open a shell in it, and end it with that.")
    ] = True,
    config: ConfigOption = None,
    socket: SocketOption = None,
    wait_seconds: WaitOption = 600.0,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Rent a node to work on, with a shell, that always ends: by hours, dollars, or being left.

    With a terminal a shell opens in it, and its end is the node's. Without one, or with --no-shell, it runs
    until Ctrl-C. The receipt says what it cost; exit codes are those of `boa run`.
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
    """Return the job file of a node to work on.

    Raises:
        InputError: when the folder or the image is none.
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
    """A run whose job waits: a shell is opened in it once it is there, and its end is the end."""

    shell_words: tuple[str, ...] = ()
    has_shell: bool = True
    _shell: subprocess.Popen[bytes] | None = None
    _is_told: bool = False
    _was_quiet: bool = False
    _is_left: bool = False

    def has_ended_well(self, receipt: Mapping[str, Any]) -> bool:
        """Whether it ended by itself, or with the shell."""
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
