"""Mounts an instance's own disks under the folder of all jobs.

    ... boa_daemon.job.scratch JOBS

JOBS is the folder of all jobs, with their scratch, their data, and their checkpoints before the upload. The
command prints one line of JSON: `on` is the mount that holds JOBS now (empty: the root volume), `said` is a
sentence about it. Disks that the image has mounted already are used as they are. Otherwise the empty NVMe
disks of the instance are formatted and mounted, as a RAID 0 if there are several. A folder that is not empty
stays where it is, and if anything fails, jobs use the root volume. Standard library only.
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

from boa_daemon.job.account import is_ours_alone
from boa_daemon.job.data import INSTANCE_STORES

LABEL, ARRAY = "boa-scratch", "/dev/md/boa-scratch"
MODEL = "Instance Storage"
"""Part of the model name of an EC2 instance's own NVMe disks; EBS volumes have `Elastic Block Store`."""
SECONDS, BOOT_SECONDS = 300.0, 60.0
_COLUMNS = "NAME,TYPE,MODEL,SIZE,LABEL,FSTYPE,MOUNTPOINT"


class NoStore(Exception):
    """The instance has no disks of its own, or they cannot be used."""


def place(jobs: Path) -> dict[str, str]:
    """Mount the instance's disks at the folder of all jobs, unless they are; return `on` and `said`."""
    jobs.mkdir(parents=True, exist_ok=True)
    there = _mounted_at(jobs)
    if there:
        return {"on": there, "said": f"jobs are on the instance's own disks ({there})"}
    if any(jobs.iterdir()):
        return {
            "on": "",
            "said": "jobs stay on the root volume: their folder was not empty when the disks were set up",
        }
    try:
        store, what = _store()
        below = store / "boa-jobs"
        below.mkdir(mode=0o755, exist_ok=True)
        if not is_ours_alone(below):
            return {"on": "", "said": f"jobs are on the root volume: {below} is not a folder of root's alone"}
        _run("mount", "--bind", str(below), str(jobs))
    except (NoStore, OSError, ValueError, KeyError, TypeError) as error:
        return {"on": "", "said": f"jobs are on the root volume: {error}"}
    return {"on": str(store), "said": f"jobs are on {what}, mounted at {store}"}


def _store() -> tuple[Path, str]:
    """Mount the instance's disks; return the mount point, and a description for people.

    Raises:
        NoStore: when there are none, or they cannot be used.
    """
    with suppress(NoStore):
        # Wait for the end of the boot: some images prepare the disks themselves during it.
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
    """Combine the disks into one device with a file system; return the device."""
    device = disks[0]
    if len(disks) > 1:
        device = ARRAY
        words = ("--level=0", f"--raid-devices={len(disks)}", "--force", "--run", *disks)
        _run("mdadm", "--create", device, *words)
    _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1", "-L", LABEL, device)
    return device


def _flat(rows: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return block devices and, recursively, their children."""
    return [one for row in rows for one in (row, *_flat(row.get("children") or []))]


def _mounted_at(folder: Path) -> str:
    """Return the folder if it is a mount point; empty if it is not, or if `findmnt` does not work."""
    try:
        return _run("findmnt", "--noheadings", "--output", "TARGET", "--mountpoint", str(folder)).strip()
    except NoStore:
        return ""


def _run(*words: str, seconds: float = SECONDS) -> str:
    """Run a command; return what it printed.

    Raises:
        NoStore: when the command is missing, fails, or takes too long.
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
