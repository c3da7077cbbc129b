"""Build the source archive and, from it, the three wheels; equal sources give equal bytes.

    python packaging/build.py FOLDER

Needs hatchling. The date in the archives is SOURCE_DATE_EPOCH, or that of the last commit. Each wheel is
built from the unpacked archive, so that a file that the archive lacks is missed here and not by whoever
builds from it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
PROJECTS = (".", "packaging/job", "packaging/client")


def epoch() -> str:
    """Return the date of the archives in seconds since 1970."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    done = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=TREE, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def build(folder: Path) -> list[Path]:
    """Build into a folder and return the files: the source archive first."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch()}

    def hatch(target: str, where: Path) -> Path:
        with tempfile.TemporaryDirectory() as scratch:
            subprocess.run(
                [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", scratch],
                cwd=where,
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            [made] = Path(scratch).iterdir()
            return Path(shutil.move(made, folder / made.name))

    archive = hatch("sdist", TREE)
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(archive) as packed:
            # Releases of Python 3.11 before 3.11.4 have no filters; the archive is our own.
            packed.extraction_filter = getattr(tarfile, "data_filter", None)
            packed.extractall(scratch)
        [sources] = Path(scratch).iterdir()
        return [archive, *(hatch("wheel", sources / project) for project in PROJECTS)]


if __name__ == "__main__":
    for path in build(Path(sys.argv[1]).resolve()):
        sys.stdout.write(f"{path}\n")
