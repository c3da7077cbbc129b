"""`boa_daemon/job/scratch.py`: jobs on the instance's own disks, or on the root volume with the reason.

The commands that list, format and mount disks are fakes; the tests check how they are called.
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
    """A node with a number of instance disks, in a folder."""

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
        """The mount point of the instance's disks."""
        return self.home / STORE

    def place(self) -> str:
        """Run the program and return its message."""
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
    """A node without instance disks."""
    return Node(tmp_path)


def test_several_disks_become_one_raid_0_with_the_jobs_folder(node: Node) -> None:
    """The array is formatted, mounted and bound over the folder of the jobs."""
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


def test_a_single_disk_is_used_without_an_array(node: Node) -> None:
    """The disk is formatted directly, and the root volume is not touched."""
    node.disks = 1
    assert "1 disk of the instance, 900 GB" in node.place()
    assert [command.split()[0] for command in node.asked()] == ["mkfs.ext4", "mount", "mount"]
    assert "/dev/nvme1n1" in node.asked()[0]
    assert "nvme0n1" not in " ".join(node.asked()), "the root volume is no disk of the instance"


def test_a_second_run_changes_nothing(node: Node) -> None:
    """A restarted daemon prepares its nodes again while jobs are on them."""
    node.disks = 2
    node.place()
    (node.jobs / "a").mkdir()
    before = node.asked()
    assert node.place().startswith("jobs are on the instance's own disks")
    assert node.asked() == before


def test_formatted_disks_are_mounted_and_not_formatted_again(node: Node) -> None:
    """After a reboot the disks keep their content."""
    node.disks = 1
    (node.home / "formatted").touch()
    assert "1 disk of the instance" in node.place()
    assert [command.split()[0] for command in node.asked()] == ["mount", "mount"]


def test_existing_jobs_stay_on_the_root_volume(node: Node) -> None:
    """A mount over the folder would hide the jobs in it."""
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
    """The message gives the reason, and the folder exists."""
    node.disks = disks
    if broken:
        (node.home / broken).touch()
    assert node.place() == f"jobs are on the root volume: {why}"
    (node.jobs / "a").mkdir()
    assert not node.jobs.is_symlink()


def test_missing_disk_commands_leave_jobs_on_the_root_volume(node: Node) -> None:
    """The message names the missing command."""
    node.disks = 1
    for name in ("findmnt", "lsblk"):
        (node.home / "bin" / name).write_text("#!/bin/sh\necho not here >&2\nexit 127\n")
    assert node.place() == "jobs are on the root volume: lsblk failed: not here"
