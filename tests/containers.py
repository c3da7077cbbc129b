"""Real containers for tests: an image of this machine's shell and Python, made without a registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tarfile
from pathlib import Path

import pytest

IMAGE = "localhost/boa-tests:1"
TOOLS = ("bash", "sh", "env", "sleep", "cat")
LEFT_OUT = {
    "test",
    "tests",
    "__pycache__",
    "site-packages",
    "dist-packages",
    "idlelib",
    "ensurepip",
    "lib2to3",
}
_RUNTIMES = (
    "",
    # For a machine that is itself a container and may not raise its limits.
    '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n',
    # The same, on a machine whose control groups crun does not accept.
    '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n[engine]\nruntime = "runc"\n',
)


def make_podman_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Find settings with which podman runs `IMAGE`; skip the test if podman cannot run it."""
    if shutil.which("podman") is None:
        pytest.skip("left out: no podman. apt-get install podman")
    if _podman("image", "exists", IMAGE).returncode:
        archive = folder / "image.tar"
        write_image(archive)
        assert not (done := _podman("import", "-q", str(archive), IMAGE)).returncode, done.stderr
        archive.unlink()
    for settings in _RUNTIMES:
        (folder / "containers.conf").write_text(settings)
        monkeypatch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
        own_user = () if os.getuid() == 0 else ("--userns=keep-id",)
        done = _podman("run", "--rm", "--network=host", *own_user, IMAGE, "/bin/python3", "-c", "")
        if not done.returncode:
            return
    pytest.skip(f"left out: podman runs nothing here: {done.stderr.strip()[-300:]}")


def _podman(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=False, timeout=120)


def write_image(archive: Path) -> None:
    """Write an image of a shell, a few tools, Python with its library, and the shared libraries of these."""
    library = Path(sysconfig.get_path("stdlib"))
    python = Path(sysconfig.get_config_var("BINDIR")) / f"python{sysconfig.get_python_version()}"
    tools = {f"/bin/{name}": Path(found) for name in TOOLS if (found := shutil.which(name))}
    kept = [file for file in library.rglob("*") if file.is_file() and not _is_left_out(library, file)]
    files = {**tools, "/bin/python3": python, **{str(file): file for file in (python, *kept)}}
    linked = [str(file) for name, file in files.items() if name.startswith("/bin/") or name.endswith(".so")]
    said = subprocess.run(["ldd", *linked], capture_output=True, text=True, check=False).stdout
    files |= {link: Path(link) for link in re.findall(r"(/\S+) \(0x", said)}
    with tarfile.open(archive, "w") as image:
        for name, file in files.items():
            if name == "/bin/python3":
                link = tarfile.TarInfo("bin/python3")
                link.type, link.linkname = tarfile.SYMTYPE, str(python)
                image.addfile(link)
            else:
                image.add(os.path.realpath(file), name.lstrip("/"))
        for name in ("tmp", "proc", "sys", "dev", "etc", "root", "var/tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
            image.addfile(folder)


def _is_left_out(library: Path, file: Path) -> bool:
    inside = file.relative_to(library)
    return bool(LEFT_OUT & set(inside.parts)) or inside.parts[0].startswith("config-")
