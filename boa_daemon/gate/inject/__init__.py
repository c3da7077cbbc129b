"""The hook without a line in the user's script: an environment in which DDP asks by itself.

Python imports `sitecustomize` at start-up from the first folder on its path that has one. `hooked` puts the
folder beside this file first; the `sitecustomize` there waits for DDP to be imported and then wraps it. It
costs a script that never imports PyTorch nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "site"
PACKAGE_ROOT = Path(__file__).resolve().parents[3]


def hooked(environment: Mapping[str, str], *, gate: str = "") -> dict[str, str]:
    """Return a job's environment with the hook put in, and `BOA_GATE` set where it is given: for engines.

    The job's Python must be able to import `boa_daemon`; this one's copy is offered last.
    """
    path = environment.get("PYTHONPATH", "")
    parts = [str(FOLDER), *([path] if path else []), str(PACKAGE_ROOT)]
    found = {"BOA_GATE": gate} if gate else {}
    return {**environment, **found, "PYTHONPATH": os.pathsep.join(parts)}
