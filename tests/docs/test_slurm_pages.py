"""The commands of the two how-to pages about Slurm run on a real Slurm, where one is asked for."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import slurm_cluster, why_no_slurm

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(bool(why_no_slurm()), reason=why_no_slurm()),
    pytest.mark.exhaustive,
    pytest.mark.xdist_group("slurm"),
]


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a page in a language."""
    text = (ROOT / "docs" / "how-to" / page).read_text()
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", text)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that jobs of other users may pass through."""
    found = Path(tempfile.mkdtemp(prefix="boa", dir="/tmp"))
    found.chmod(0o711)
    yield found
    shutil.rmtree(found, ignore_errors=True)


def run(page: str, folder: Path, settings: str, environment: dict[str, str]) -> str:
    """Run all commands of a page in a folder with its settings; return what they print."""
    (folder / "boa.toml").write_text(settings)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = "set -e\ntrap 'kill $(cat daemon.pid) 2>/dev/null || true' EXIT\n" + "\n".join(
        blocks(page, "sh")
    )
    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=folder, env={**os.environ, **environment, "PATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    log = (folder / "daemon.log").read_text()[-2000:] if (folder / "daemon.log").exists() else ""
    assert done.returncode == 0, done.stdout + done.stderr + log
    return done.stdout


def test_jobs_run_on_slurm_as_the_page_says(folder: Path) -> None:
    """The batch script runs on a node of the partition, and its price is billed."""
    (settings,) = blocks("run-jobs-on-slurm.md", "toml")
    settings = settings.replace('"shared" ', f'"{folder}/shared" ').replace(
        "[daemon]", "own_user = false\n[daemon]"
    )
    with slurm_cluster() as cluster:
        said = run("run-jobs-on-slurm.md", folder, settings, {"SLURM_CONF": str(cluster.conf)})
    assert "hello.sbatch:5: --output ignored: `boa logs` has the output of every rank" in said
    assert "COMPLETED boa-hello n1" in said
    assert "\nn1\n" in said


def test_slurm_gets_its_nodes_as_the_page_says(folder: Path) -> None:
    """An sbatch runs on a rented node, which is given back; nothing is left."""
    (settings,) = blocks("rent-nodes-for-slurm.md", "toml")
    programs = {name: str(folder / "bin" / f"boa-{name}") for name in ("resume", "suspend", "prolog")}
    (folder / "boa.toml").write_text(settings)
    boa = [
        str(Path(sys.executable).parent / "boa"),
        *shlex.split(blocks("rent-nodes-for-slurm.md", "sh")[0])[1:],
    ]
    subprocess.check_call(boa, cwd=folder, stdout=subprocess.DEVNULL)
    with slurm_cluster(("n1",), **programs, seconds=6) as cluster:
        start = f"hostname $BOA_SLURM_NODE; exec /usr/sbin/slurmd -D -b -f {cluster.conf} -N $BOA_SLURM_NODE"
        own = f"[slurm]\nconf = \"{cluster.conf}\"\nrun = '''exec unshare -u sh -c \"{start}\"'''\n"
        settings = settings.replace("[slurm.partitions", f"{own}[slurm.partitions")
        settings += "tick_seconds = 1\n[engine]\nown_user = false\n"
        said = run("rent-nodes-for-slurm.md", folder, settings, {"SLURM_CONF": str(cluster.conf)})
    assert "\nc1\n" in said
    assert "slurm-rented" in said
    assert "No instances." in said
