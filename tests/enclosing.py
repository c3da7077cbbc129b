"""What the kernel lets this process have for a command: control groups, and shared memory of its own."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from functools import cache

from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.own_memory import enter_own_memory


@cache
def can_make_groups(*, memory_bytes: int = 0) -> bool:
    """Return whether this process may make control groups, with a limit of memory; root often may not."""
    with suppress(OSError):
        ControlGroup.make(f"boa-try-{os.getpid()}", memory_bytes=memory_bytes).remove()
        return True
    return False


@cache
def can_have_own_memory() -> bool:
    """Return whether this process may have other namespaces; root in most containers may not."""
    try:
        return subprocess.run(["true"], preexec_fn=enter_own_memory, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
