"""What a command of the table of commands consists of: the command, its files, and what it needs."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

JOBS = Path(__file__).parent / "command_jobs"
PYTHON = sys.executable
LOOP = f"{PYTHON} {JOBS / 'loop.py'}"
OTHER = f"BOA_CHECKPOINT_DIR=other BOA_PROGRESS_FILE= {LOOP}"
"""A second training beside the first: two that share a folder replace each other's checkpoint."""
BIN = Path(PYTHON).parent
NEVER = "--steps 1000000 --every 1000000 --pause 0.02"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A command, the files beside it, what it needs, its GPUs, and the step after which it is stopped.

    `never` is what must not be printed: the next command, which a stop must keep from running. A stop must
    end within `stop_seconds`, if that is not 0: long before its grace is over.
    """

    run: str
    files: dict[str, str] = field(default_factory=dict)
    needs: str = ""
    tool: str = ""
    gpus: int = 1
    after_step: int = 20
    grace_seconds: float = 60.0
    never: str = ""
    stop_seconds: float = 0.0

    @property
    def is_possible(self) -> bool:
        """Whether the programs and packages are here."""
        return (not self.needs or find_spec(self.needs) is not None) and (
            not self.tool or shutil.which(self.tool) is not None
        )


def launcher(start: str) -> dict[str, str]:
    """Return a Python launcher, as those of large frameworks: it starts the training and waits for it."""
    return {"launch.py": f"import os, subprocess, sys\nargs = {LOOP.split()!r}\n{start}\n"}


LAUNCH = f"{PYTHON} launch.py"
NEXT = "; echo it went on"
PLAIN = (
    "import time\n"
    "from boa_daemon import job\n"
    "for step in job.steps(1_000_000, load=lambda path: None, save=lambda file: file.write(b'x')):\n"
    "    time.sleep(0.005)\n"
)
