"""Seconds and megabytes of each way to install BOA from the files of a release, and whether it runs then.

    bash .ci/release && python benchmarks/installing.py dist [--base IMAGE] [WAY ...]

Every way starts from an empty folder, without caches of pip and uv, so the seconds have the download of the
dependencies in them. Ways whose tool is missing say so. `--base` is an image with Python for the image's
build. The Debian package is unpacked and its `/opt/boa` put in place for the demo; that needs root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEGABYTE = 1e6


class Trial:
    """An empty folder, and the commands of one way, which are timed."""

    def __init__(self, dist: Path, base: str, podman: list[str]) -> None:
        self.dist, self.base, self.podman = dist, base, podman
        self.folder = Path(tempfile.mkdtemp(prefix="boa-install-"))
        self.seconds = 0.0

    def wheel(self, name: str = "boa_daemon") -> str:
        """Return the path of a wheel."""
        [path] = self.dist.glob(f"{name}-*.whl")
        return str(path)

    def run(self, *words: str, timed: bool = True) -> str:
        """Run a command in the folder and return what it printed.

        Raises:
            RuntimeError: when it fails; the message is the end of its output.
        """
        environment = os.environ | {
            "HOME": str(self.folder / "home"),
            "UV_TOOL_DIR": str(self.folder / "tools"),
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "PIPX_HOME": str(self.folder / "pipx"),
            "PIPX_BIN_DIR": str(self.folder / "bin"),
            "PIP_NO_CACHE_DIR": "1",
        }
        for name in [each for each in environment if each.startswith("BOA_")]:
            del environment[name]
        began = time.monotonic()
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        if timed:
            self.seconds += time.monotonic() - began
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout

    def demo(self, *boa: str) -> bool:
        """Whether `boa demo` finishes its jobs."""
        return "85 jobs" in self.run(*boa, "demo", timed=False)

    def megabytes(self, *parts: str) -> float:
        """Return the size of folders."""
        return (
            sum(
                path.lstat().st_size
                for part in parts
                for path in (self.folder / part).rglob("*")
                if path.is_file() and not path.is_symlink()
            )
            / MEGABYTE
        )


def pip(trial: Trial) -> tuple[float, bool]:
    """A virtual environment and pip."""
    trial.run(sys.executable, "-m", "venv", "venv")
    trial.run("venv/bin/pip", "install", "--quiet", "--find-links", str(trial.dist), trial.wheel())
    return trial.megabytes("venv"), trial.demo("venv/bin/boa")


def client(trial: Trial) -> tuple[float, bool]:
    """The client alone; it has no demo, so its help must come."""
    trial.run(sys.executable, "-m", "venv", "venv")
    trial.run(
        "venv/bin/pip", "install", "--quiet", "--find-links", str(trial.dist), trial.wheel("boa_client")
    )
    return trial.megabytes("venv"), "Usage" in trial.run("venv/bin/boa", "submit", "--help", timed=False)


def helper(trial: Trial) -> tuple[float, bool]:
    """The helper of training scripts alone; it must train."""
    trial.run(sys.executable, "-m", "venv", "--without-pip", "venv")
    trial.run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        "venv/bin/python",
        "install",
        "--quiet",
        "--no-index",
        trial.wheel("boa_job"),
    )
    hooks = "load=lambda path: None, save=lambda file: file.write(b'state')"
    program = f"from boa_daemon import job; print(sum(1 for _ in job.steps(20, {hooks})))"
    return trial.megabytes("venv/lib"), trial.run(
        "venv/bin/python", "-c", program, timed=False
    ).strip() == "20"


def uvx(trial: Trial) -> tuple[float, bool]:
    """Run without installing, by uv."""
    words = (
        "uvx",
        "--quiet",
        "--python",
        sys.executable,
        "--find-links",
        str(trial.dist),
        "--from",
        trial.wheel(),
        "boa",
    )
    trial.run(*words, "--version")
    return trial.megabytes("uv"), trial.demo(*words)


def pipx(trial: Trial) -> tuple[float, bool]:
    """An environment of its own, by pipx."""
    trial.run("pipx", "install", "--quiet", "--pip-args", f"--find-links {trial.dist}", trial.wheel())
    return trial.megabytes("pipx"), trial.demo("bin/boa")


def deb(trial: Trial) -> tuple[float, bool]:
    """The Debian package."""
    [package] = trial.dist.glob("boa-daemon_*.deb")
    trial.run("dpkg-deb", "--extract", str(package), "root")
    size = trial.megabytes("root")
    shutil.copytree(trial.folder / "root" / "opt" / "boa", "/opt/boa", symlinks=True)
    try:
        return size, trial.demo("/opt/boa/bin/boa")
    finally:
        shutil.rmtree("/opt/boa")


def image(trial: Trial) -> tuple[float, bool]:
    """An image, by podman; the seconds are those of the build."""
    words = [
        "podman",
        "build",
        "--quiet",
        *trial.podman,
        "--build-arg",
        f"BASE={trial.base}",
        "-f",
        str(ROOT / "packaging" / "Containerfile"),
    ]
    trial.run(*words, "-t", "boa-daemon:trial", str(trial.dist))
    size = int(
        trial.run("podman", "image", "inspect", "--format", "{{.Size}}", "boa-daemon:trial", timed=False)
    )
    return size / MEGABYTE, trial.demo("podman", "run", "--rm", "--network", "none", "boa-daemon:trial")


WAYS: dict[str, Callable[[Trial], tuple[float, bool]]] = {
    each.__name__: each for each in (pip, uvx, pipx, deb, image, client, helper)
}


def main() -> None:
    """Try the ways and print a row for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dist", type=Path)
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS], metavar="WAY")
    parser.add_argument("--base", default="docker.io/library/python:3.13-slim")
    parser.add_argument("--podman", default="", help="options of podman build, for machines that need some")
    given = parser.parse_args()
    for name in given.ways or WAYS:
        trial = Trial(given.dist.resolve(), given.base, given.podman.split())
        try:
            size, runs = WAYS[name](trial)
            print(
                f"{name:8} {trial.seconds:6.1f} s {size:7.1f} MB  {'runs' if runs else 'does not run'}",
                flush=True,
            )
        except (RuntimeError, OSError, ValueError) as error:
            print(f"{name:8} failed: {error}", flush=True)
        finally:
            shutil.rmtree(trial.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
