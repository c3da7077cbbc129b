"""The global random generators of a process: Python's, numpy's and PyTorch's, saved and restored with a job.

A job that resumes would otherwise repeat the random numbers of its first steps (the same dropout masks and
augmentations again). At the same width each rank goes on with its own numbers. At another width there is no
"own" any more: every rank is seeded from the saved state, the step and its rank, so that ranks differ and the
same resize gives the same numbers. Generators that a script makes for itself, and those of a data loader's
workers, are not known here. Numpy and torch are only used where the script has imported them.
"""

from __future__ import annotations

import hashlib
import pickle
import random
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_FILE = re.compile(r"random-(\d+)-of-(\d+)")


def random_state() -> bytes:
    """Return the state of this process's global generators: some 10 kB."""
    found: dict[str, Any] = {"random": random.getstate()}
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    if hasattr(numpy, "random"):
        found["numpy"] = pickle.dumps(numpy.random.get_state(legacy=False))
    if torch is not None and hasattr(torch, "get_rng_state"):
        found["torch"] = bytes(torch.get_rng_state().tolist())
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            # The device of this rank alone: asking the others would take memory on each of them.
            found["cuda"] = bytes(torch.cuda.get_rng_state().tolist())
    return pickle.dumps(found)


def restore_random_state(state: bytes) -> list[str]:
    """Set this process's generators to a saved state; return the names of those that could not be set."""
    failed = []
    for name, value in _parts(state).items():
        try:
            if name == "random":
                random.setstate(value)
            elif name == "numpy":
                import_module("numpy").random.set_state(pickle.loads(value))
            elif name in ("torch", "cuda"):
                torch: Any = import_module("torch")
                tensor = torch.frombuffer(bytearray(value), dtype=torch.uint8)
                (torch if name == "torch" else torch.cuda).set_rng_state(tensor)
        except Exception:  # Another version, or no GPU now: training goes on, and the log names it.
            failed.append(name)
    return failed


def reseed(state: bytes, *, step: int, rank: int) -> None:
    """Seed this process's generators from a saved state, the step and the rank."""
    digest = hashlib.sha256(b"%d %d " % (step, rank) + hashlib.sha256(state).digest()).digest()
    seed = int.from_bytes(digest[:4], "big")
    for name in _parts(state):
        with suppress(Exception):
            if name == "random":
                random.seed(digest)
            elif name == "numpy":
                import_module("numpy").random.seed(seed)
            elif name == "torch":
                import_module("torch").manual_seed(seed)  # It seeds the GPUs as well.


def resume_random(states: Mapping[int, bytes], *, step: int, rank: int, width: int, saved_width: int) -> str:
    """Set the generators of a rank from those that all ranks had saved; return a sentence for the log.

    `states` maps ranks to their states; some may be missing, for instance those of another node.
    """
    if not states:
        return "no random state was saved: random numbers start anew"
    if width == saved_width and rank in states:
        failed = restore_random_state(states[rank])
        left = f", except those of {', '.join(failed)}" if failed else ""
        return f"random generators go on from step {step}{left}"
    reseed(states[min(states)], step=step, rank=rank)
    return (
        f"random generators are seeded from step {step} and the rank, since {saved_width} ranks saved and "
        f"{width} resume"
    )


def write_random(folder: Path, *, rank: int, width: int) -> None:
    """Write this rank's state into the folder of a checkpoint."""
    (folder / f"random-{rank}-of-{width}").write_bytes(random_state())


def read_random(folder: Path) -> tuple[dict[int, bytes], int]:
    """Return the states in the folder of a checkpoint by rank, and the number of ranks that saved."""
    states: dict[int, bytes] = {}
    width = 0
    for file in folder.iterdir() if folder.is_dir() else ():
        if found := _FILE.fullmatch(file.name):
            states[int(found[1])], width = file.read_bytes(), int(found[2])
    return states, width


def _parts(state: bytes) -> dict[str, Any]:
    """Return the parts of a saved state; none of a damaged one."""
    with suppress(Exception):
        found = pickle.loads(state)
        return found if isinstance(found, dict) else {}
    return {}
