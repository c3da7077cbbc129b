"""The disks of an instance as the place of jobs: formatted, mounted, and laid over the folder of all jobs.

    ... boa_daemon.job.scratch JOBS

prints one line of JSON: `on` is where the folder JOBS (of jobs, their checkpoints on the way to the bucket,
their scratch and data) lies now, `said` is that in words. What the image has mounted already is taken as it
is; else the empty NVMe disks of the instance become one, a RAID 0 where there are several. Nothing is laid
over a folder that holds anything, and where something fails the root volume takes all. Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from boa_daemon.job.data import INSTANCE_STORES

LABEL, ARRAY = "boa-scratch", "/dev/md/boa-scratch"
MODEL = "Instance Storage"
"""Of the NVMe disks of EC2 the model says which belong to the instance; volumes say `Elastic Block Store`."""
SECONDS, BOOT_SECONDS = 300.0, 60.0
_COLUMNS = "NAME,TYPE,MODEL,SIZE,LABEL,FSTYPE,MOUNTPOINT"


class NoStore(Exception):
    """The disks of the instance cannot be used; the sentence says why."""


def place(jobs: Path) -> dict[str, str]:
    """Lay the disks of the instance over the folder of all jobs, once; return where it lies, and in words."""
    jobs.mkdir(parents=True, exist_ok=True)
    there = _mounted_at(jobs)
    if there:
        return {"on": there, "said": f"jobs are on the instance's own disks ({there})"}
    if any(jobs.iterdir()):
        return {
            "on": "",
            "said": "jobs stay on the root volume: there were some before its disks were looked at",
        }
    try:
        store, what = _store()
        below = store / "boa-jobs"
        below.mkdir(exist_ok=True)
        _run("mount", "--bind", str(below), str(jobs))
    except (NoStore, OSError, ValueError, KeyError, TypeError) as error:
        return {"on": "", "said": f"jobs are on the root volume: {error}"}
    return {"on": str(store), "said": f"jobs are on {what}, mounted at {store}"}


def _store() -> tuple[Path, str]:
    """Return where the instance's disks are mounted, and what they are.

    Raises:
        NoStore: when there are none, or they cannot be used.
    """
    with suppress(NoStore):
        # An image that prepares the disks by itself does so while it boots: not both at once.
        _run("systemctl", "is-system-running", "--wait", seconds=BOOT_SECONDS)
    for store in map(Path, INSTANCE_STORES):
        if _mounted_at(store) and os.access(store, os.W_OK):
            return store, "the disks that the image has prepared"
    found = json.loads(_run("lsblk", "--json", "--bytes", "--paths", "--output", _COLUMNS))
    rows = list(_flat(found["blockdevices"]))
    ours = [str(row["name"]) for row in rows if row.get("label") == LABEL]
    disks = [
        row for row in found["blockdevices"]
        if row["type"] == "disk" and MODEL in (row.get("model") or "") and not row.get("mountpoint")
    ]  # fmt: skip
    free = [row for row in disks if not row.get("children") and not row.get("fstype")]
    if not ours and not free:
        raise NoStore("the instance has no disks of its own" if not disks else "its own disks are in use")
    device = ours[0] if ours else _made([str(row["name"]) for row in free])
    store = Path(os.environ.get("BOA_STORE", INSTANCE_STORES[1]))
    store.mkdir(parents=True, exist_ok=True)
    _run("mount", "-o", "noatime", device, str(store))
    gigabytes = sum(int(row["size"]) for row in (disks if ours else free)) / 1e9
    number = len(disks if ours else free)
    return store, f"{number} disk{'s' if number > 1 else ''} of the instance, {gigabytes:.0f} GB"


def _made(disks: list[str]) -> str:
    """Return one device of all disks, with a file system on it."""
    device = disks[0]
    if len(disks) > 1:
        device = ARRAY
        words = ("--level=0", f"--raid-devices={len(disks)}", "--force", "--run", *disks)
        _run("mdadm", "--create", device, *words)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1", "-L", LABEL, device)
    return device


def _flat(rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return devices and what is made of them."""
    return [one for row in rows for one in (row, *_flat(row.get("children") or []))]


def _mounted_at(folder: Path) -> str:
    """Return the folder where it is a mount of its own; empty where it is none, or nobody can say."""
    try:
        return _run("findmnt", "--noheadings", "--output", "TARGET", "--mountpoint", str(folder)).strip()
    except NoStore:
        return ""


def _run(*words: str, seconds: float = SECONDS) -> str:
    """Run a command; return what it printed.

    Raises:
        NoStore: when it is not there, fails, or takes too long.
    """
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=seconds, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoStore(f"{words[0]}: {type(error).__name__}") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NoStore(f"{words[0]} failed: {lines[-1][:160] if lines else f'exit code {done.returncode}'}")
    return done.stdout


if __name__ == "__main__":
    print(json.dumps(place(Path(sys.argv[1]))))  # noqa: T201 - read by whoever asked
