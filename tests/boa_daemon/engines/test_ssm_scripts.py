"""The bundle that nodes unpack is reproducible and complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from boa_daemon.engines import ssm_scripts
from boa_daemon.engines.layout import Layout
from boa_daemon.engines.ssm_prefetch import prefetch_script
from boa_daemon.tick.facts.ports import JobSpec

COPY = 'cp "$3" "$4"'


def test_the_bundle_is_the_same_in_every_thread() -> None:
    """The bundle's digest depends only on the files."""
    packed = set()
    for _ in range(3):
        ssm_scripts.bundle.cache_clear()
        with ThreadPoolExecutor(8) as pool:
            packed |= set(pool.map(lambda _: ssm_scripts.bundle(), range(8)))

    assert len(packed) == 1


UNIT = {
    "folder": "/opt/a b/n0", "name": "boa-a-g1-n0", "checkpoint_dir": "/opt/a b/a/checkpoint",
    "workdir": "/opt/a b/a/work", "uid": 5, "gid": 5, "cpus": 2.0, "memory_gb": 3.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "script",
    [
        ssm_scripts.prepare_script("/opt/a b", "s3://b/packed"),
        ssm_scripts.start_script("/opt/a b", UNIT, key="ab"),
        ssm_scripts.start_script("/opt/a b", {**UNIT, "workdir": "/home/her work"}),
        ssm_scripts.stop_script("boa-a-*"),
        ssm_scripts.kill_script("boa-a-*"),
        ssm_scripts.status_script("/opt/a b", "/opt/a b/n0", key="ab"),
        prefetch_script(
            JobSpec(job="a", name="a", class_name="c", run="x", code="c", image="i"),
            Layout(root=Path("/opt/a b")),
            "/opt/a b",
            code_at="s3://b/code",
        ),
    ],
    ids=["prepare", "start", "start elsewhere", "stop", "kill", "status", "prefetch"],
)
def test_every_script_for_a_node_is_understood_by_a_plain_shell(script: str) -> None:
    """SSM runs scripts with `sh`, which is dash on Ubuntu."""
    shell = shutil.which("dash") or "sh"
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("damage", ["", "byte", "cut", "gone"])
def test_a_node_unpacks_only_an_undamaged_bundle(tmp_path: Path, damage: str) -> None:
    """A changed, cut or missing bundle fails the script and leaves no folder."""
    _, packed = ssm_scripts.bundle()
    source, root, programs = tmp_path / "packed", tmp_path / "a node's", tmp_path / "bin"
    content = {"byte": packed[:-9] + bytes([packed[-9] ^ 1]) + packed[-8:], "cut": packed[:-1]}.get(
        damage, packed
    )
    if damage != "gone":
        source.write_bytes(content)
    programs.mkdir()
    # As root, the script might take this machine's disks for those of a rented node.
    none = dict.fromkeys(("findmnt", "lsblk", "mdadm", "mkfs.ext4", "mount", "systemctl"), "exit 1")
    for name, text in {"aws": COPY, "systemd-run": "", **none}.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", "-c", ssm_scripts.prepare_script(str(root), str(source))],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    library = Path(ssm_scripts.library(str(root)))
    assert (done.returncode == 0) is (not damage), done.stderr
    assert [each.name for each in library.parent.iterdir()] == ([] if damage else [library.name])
    if not damage:
        assert (library / "boa_daemon" / "job" / "keeper.py").exists()
        assert ssm_scripts.READY in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's scripts could give folders away")
def test_root_makes_no_working_folder_outside_of_the_jobs_own() -> None:
    """A new folder in a job's own belongs to its user; one of the system, or behind a link, is not made."""
    with tempfile.TemporaryDirectory(prefix="boa-", dir="/tmp") as name:
        place, uid = Path(name), 0x7100_0001
        place.chmod(0o755)
        (place / "system").mkdir()
        (place / "theirs").mkdir()
        os.chown(place / "theirs", uid, uid)
        (place / "theirs" / "link").symlink_to(place / "system")
        job = place / "jobs" / "a-1"
        (job / "work").mkdir(parents=True)
        (job / "work" / "link").symlink_to(place / "system")
        made = {
            str(job / "home"): uid,
            str(place / "theirs" / "new"): uid,
            str(place / "system" / "x.service.d"): None,
            str(place / "theirs" / "link" / "x.service.d"): None,
        }
        for work, owner in made.items():
            unit = {"workdir": work, "uid": uid, "gid": uid, "checkpoint_dir": str(job / "checkpoint")}
            subprocess.run(
                ["bash", "-euc", ssm_scripts._workdir_script(unit)], check=True, capture_output=True
            )
            assert (Path(work).stat().st_uid if Path(work).exists() else None) == owner, work
        code = {"workdir": str(job / "work" / "link" / "x"), "mounts": str(job / "work"), "uid": uid}
        assert ssm_scripts._workdir_script(code) == ""
