"""`boa_daemon/job/scratch.py`: the instance's own disks under the jobs, or the root volume and why.

The commands that look at disks, make and mount them are stand-ins; what is tested is what they are asked for.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from boa_daemon.testing.fake_disks import STORE, stand_ins


@dataclass
class Node:
    """A node with so many disks of its own, in a folder."""

    home: Path
    disks: int = 0

    def __post_init__(self) -> None:
        (self.home / "bin").mkdir(parents=True)
        for name, script in {**stand_ins(), "systemctl": "#!/bin/sh\n"}.items():
            (self.home / "bin" / name).write_text(script)
            (self.home / "bin" / name).chmod(0o755)

    @property
    def jobs(self) -> Path:
        """The folder of all jobs."""
        return self.home / "boa" / "jobs"

    @property
    def store(self) -> Path:
        """Where its own disks are mounted."""
        return self.home / STORE

    def place(self) -> str:
        """Run the program; return what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "boa_daemon.job.scratch", str(self.jobs)],
            env={
                **os.environ, "PATH": f"{self.home / 'bin'}:/usr/bin:/bin", "HOME": str(self.home),
                "BOA_FAKE_DISKS": str(self.disks), "BOA_STORE": str(self.store),
            },
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert set(found) == {"on", "said"}
        return str(found["said"])

    def asked(self) -> list[str]:
        """Return the commands that changed something, in order."""
        log = self.home / "disks.log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node without disks of its own."""
    return Node(tmp_path)


def test_several_disks_become_one_and_jobs_are_on_it(node: Node) -> None:
    """A RAID 0 of all, one file system, mounted, and laid over the folder of the jobs."""
    node.disks = 2
    assert node.place() == f"jobs are on 2 disks of the instance, 1800 GB, mounted at {node.store}"
    assert node.asked() == [
        "mdadm --create /dev/md/boa-scratch --level=0 --raid-devices=2 --force --run "
        "/dev/nvme1n1 /dev/nvme2n1",
        "mkfs.ext4 -q -F -m 0 -E nodiscard,lazy_itable_init=1 -L boa-scratch /dev/md/boa-scratch",
        f"mount -o noatime /dev/md/boa-scratch {node.store}",
        f"mount --bind {node.store}/boa-jobs {node.jobs}",
    ]
    (node.jobs / "a").mkdir()
    assert (node.store / "boa-jobs" / "a").is_dir()


def test_one_disk_needs_no_array(node: Node) -> None:
    """It is formatted as it is."""
    node.disks = 1
    assert "1 disk of the instance, 900 GB" in node.place()
    assert [command.split()[0] for command in node.asked()] == ["mkfs.ext4", "mount", "mount"]
    assert "/dev/nvme1n1" in node.asked()[0]
    assert "nvme0n1" not in " ".join(node.asked()), "the root volume is no disk of the instance"


def test_it_is_done_once(node: Node) -> None:
    """A daemon that starts anew has nodes prepared anew, with jobs on them."""
    node.disks = 2
    node.place()
    (node.jobs / "a").mkdir()
    before = node.asked()
    assert node.place().startswith("jobs are on the instance's own disks")
    assert node.asked() == before


def test_what_was_made_before_is_mounted_and_not_made_again(node: Node) -> None:
    """After a reboot the disks hold what they held."""
    node.disks = 1
    (node.home / "formatted").touch()
    assert "1 disk of the instance" in node.place()
    assert [command.split()[0] for command in node.asked()] == ["mount", "mount"]


def test_nothing_is_laid_over_jobs_that_are_there(node: Node) -> None:
    """They would be gone for whoever works with them."""
    node.disks = 1
    (node.jobs / "a").mkdir(parents=True)
    assert "stay on the root volume" in node.place()
    assert node.asked() == []


@pytest.mark.parametrize(
    ("disks", "broken", "why"),
    [
        (0, "", "the instance has no disks of its own"),
        (1, "no-mkfs.ext4", "mkfs.ext4 failed: mkfs.ext4: device or resource busy"),
        (2, "no-mdadm", "mdadm failed: mdadm: device or resource busy"),
        (1, "no-mount", "mount failed: mount: permission denied"),
    ],
)
def test_without_usable_disks_jobs_are_on_the_root_volume(
    node: Node, disks: int, broken: str, why: str
) -> None:
    """And it is said why; the folder is there all the same."""
    node.disks = disks
    if broken:
        (node.home / broken).touch()
    assert node.place() == f"jobs are on the root volume: {why}"
    (node.jobs / "a").mkdir()
    assert not node.jobs.is_symlink()


def test_an_image_without_the_commands_is_no_hindrance(node: Node) -> None:
    """What is not there is named."""
    node.disks = 1
    for name in ("findmnt", "lsblk"):
        (node.home / "bin" / name).write_text("#!/bin/sh\necho not here >&2\nexit 127\n")
    assert node.place() == "jobs are on the root volume: lsblk failed: not here"
