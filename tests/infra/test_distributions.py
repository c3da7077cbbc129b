"""Three distributions from one tree: what each holds and needs, and that builds repeat byte for byte."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"scipy", "sqlalchemy", "alembic", "fastapi", "uvicorn", "boto3", "apscheduler"}
"""What a machine that only submits and asks does not need."""


def _built(folder: Path) -> dict[str, Path]:
    """Build all distributions and return their files by the first words of their names."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    command = [sys.executable, str(ROOT / "packaging" / "build.py"), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name.replace("-0.1.0", "").partition("-")[0]: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """The wheels, by distribution."""
    made = _built(tmp_path_factory.mktemp("dist"))
    return {name: zipfile.ZipFile(path) for name, path in made.items() if path.suffix == ".whl"}


def _code(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def _needs(wheel: zipfile.ZipFile) -> set[str]:
    [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    found = message_from_string(wheel.read(name).decode()).get_all("Requires-Dist", [])
    return {re.split(r"[^A-Za-z0-9-]", line)[0] for line in found if "extra ==" not in line}


def test_the_helper_is_small_needs_nothing_and_shares_no_file(wheels: dict[str, zipfile.ZipFile]) -> None:
    """`boa-job` is `boa_daemon.job` alone, below 200 kB, and the others ship everything else."""
    helper = _code(wheels["boa_job"])

    assert sum(item.compress_size for item in wheels["boa_job"].filelist) < 200_000
    assert helper
    assert all(name.startswith("boa_daemon/job/") for name in helper)
    assert _needs(wheels["boa_job"]) == set()
    assert not helper & _code(wheels["boa_daemon"])
    in_tree = {
        str(path.relative_to(ROOT))
        for top in ("policies", "boa_daemon")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert helper | _code(wheels["boa_daemon"]) == in_tree


def test_a_client_is_the_same_program_without_heavy_requirements(wheels: dict[str, zipfile.ZipFile]) -> None:
    """`boa-client` and `boa-daemon` have the same files; both need the helper of their version."""
    assert _code(wheels["boa_client"]) == _code(wheels["boa_daemon"])
    assert not HEAVY & _needs(wheels["boa_client"])
    assert HEAVY | {"boa-job"} | _needs(wheels["boa_client"]) <= _needs(wheels["boa_daemon"])


def test_a_build_for_others_names_no_folder_of_this_machine(wheels: dict[str, zipfile.ZipFile]) -> None:
    """`pip install .` takes the helper beside it; a wheel that leaves the machine names its version."""
    for name in ("boa_client", "boa_daemon"):
        [metadata] = [item for item in wheels[name].namelist() if item.endswith("/METADATA")]
        text = wheels[name].read(metadata).decode()

        assert "Requires-Dist: boa-job==0.1.0\n" in text
        assert "file:" not in text


def test_two_builds_are_equal_byte_for_byte(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    """Also when the files' times differ."""
    again = _built(tmp_path)
    for name, wheel in wheels.items():
        assert wheel.filename is not None
        first = hashlib.sha256(Path(wheel.filename).read_bytes()).hexdigest()
        assert hashlib.sha256(again[name].read_bytes()).hexdigest() == first, name


def test_what_runs_in_jobs_uses_nothing_newer_than_python_3_9() -> None:
    """Neither syntax nor functions of the library: an old image has an old Python."""
    vermin = [str(Path(sys.executable).with_name("vermin")), "-t=3.9-", "--no-tips", "--violations", "-vv"]
    done = subprocess.run(
        [*vermin, str(ROOT / "boa_daemon" / "job")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-2000:]


def _old_python() -> str | None:
    for minor in (9, 10):
        versions = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3"))
        found = str(versions[-1]) if versions else shutil.which(f"python3.{minor}")
        if found and not subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode:
            return found
    return None


@pytest.mark.skipif(_old_python() is None, reason="left out: no Python before 3.11 is installed")
def test_the_helper_alone_trains_on_an_old_python(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    """Every module that needs no framework can be imported, and a script runs, stops and resumes."""
    wheels["boa_job"].extractall(tmp_path / "lib")
    script = tmp_path / "train.py"
    script.write_text(
        """
import importlib, pkgutil, sys
from boa_daemon import job
import boa_daemon.job

for module in pkgutil.walk_packages(boa_daemon.job.__path__, "boa_daemon.job."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "jax", "transformers", "lightning", "ray"):
            raise
at = {"step": 0}
steps = job.steps(
    int(sys.argv[1]),
    load=lambda path: at.update(step=int(path.read_bytes())),
    save=lambda file: file.write(str(at["step"]).encode()),
    every=5,
)
for step in steps:
    print("step", step)
    at["step"] = step + 1
    job.report(step + 1, samples=1.0, loss=1.0)
""",
        encoding="utf-8",
    )
    python = _old_python()
    assert python is not None
    said = [
        subprocess.run(
            [python, str(script), steps],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path / "lib"), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\n")
        for steps in ("10", "12")
    ]

    assert [said[0][0], said[1][0]] == ["step 0", "step 10"]


@pytest.mark.first_set(4)
@pytest.mark.parametrize(
    "command",
    ["status", "jobs", "logs x-1", "explain x-1", "cost", "cancel x-1", "instances", "submit {file}"],
)
def test_a_client_asks_and_submits_without_the_daemons_packages(command: str, tmp_path: Path) -> None:
    """Where scipy, SQLAlchemy and their like are missing, a verb gets as far as the daemon's socket."""
    file = tmp_path / "job.yaml"
    file.write_text("name: x\nclass: default\nrun: echo hello\nmax_gpus: 1\n", encoding="utf-8")
    done = _without(HEAVY, command.format(file=file), tmp_path)

    assert done.returncode == 5, done.stderr
    assert "DaemonUnreachable" in done.stderr


def test_a_command_of_the_daemon_says_what_to_install(tmp_path: Path) -> None:
    """One sentence, with the exit code of a missing extra."""
    done = _without(HEAVY, "doctor", tmp_path)

    assert done.returncode == 2
    assert re.search(r"pip install (--python \S+ )?boa-daemon", done.stderr)
    assert "Traceback" not in done.stderr


def _without(packages: set[str], command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where some packages cannot be imported."""
    program = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["boa", *{command.split()!r}]
from boa_daemon.cli import main
main()
"""
    environment = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
