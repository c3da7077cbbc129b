"""The pages on backups, upgrades and uninstalling are followed on a running daemon, command by command."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from daemon_site import SETTINGS, Site, a_site, wait_for

from boa_daemon.api.client import Client

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to"
FIRST_BACKUP_SECONDS = 60.0


def commands(page: str) -> list[list[str]]:
    """Return the commands of each `sh` block of a page."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    return [body.strip().splitlines() for body in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)]


def follow(site: Site, block: list[str], **names: str) -> str:
    """Run a block's commands in the site's folder, and return the output; `boa daemon` starts the daemon."""
    said = ""
    for line in block:
        for name, value in names.items():
            line = line.replace(name, value)  # noqa: PLW2901 - the line with its placeholders filled
        if line == "boa daemon":
            site.up()
            continue
        words = (
            line.replace("boa ", f"{shlex.quote(sys.executable)} -m boa_daemon ", 1)
            if line.startswith("boa")
            else line
        )
        done = subprocess.run(words, shell=True, cwd=site.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        said += done.stdout
    return said


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's folders are the test's own."""
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))


def submitted(site: Site, run: str = "true") -> str:
    """Submit a job, and return its id."""
    content = {"name": "j", "class": "default", "run": run, "workdir": "/", "max_gpus": 1}
    with Client(site.socket) as client:
        (job,) = client.post("/jobs", {"jobs": [content]})["jobs"]
    return str(job)


@pytest.mark.exhaustive  # Starts the program four times.
def test_the_page_on_backups() -> None:
    """The first copy is there before the first job, and both ways back work as the page says."""
    _rsync, copy, recover, by_choice = commands("backup-and-restore.md")
    with a_site(SETTINGS.format(usd=10.0) + "backup_seconds = 2\n") as site:
        began = time.monotonic()
        site.up()
        backups = site.folder / "state" / "backups"
        wait_for(lambda: bool(list(backups.glob("*.sqlite"))), site)
        assert time.monotonic() - began < FIRST_BACKUP_SECONDS
        job = submitted(site)
        wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "finished", site)
        known = set(backups.glob("*.sqlite"))
        wait_for(lambda: len(set(backups.glob("*.sqlite")) - known) >= 2, site)
        assert site.end(signal.SIGTERM) == 0
        follow(site, copy)
        for path in (site.folder / "state").glob("boa.sqlite*"):
            path.write_bytes(b"no database" * 500)
        follow(site, recover)
        assert site.get("/status")["fault"] == ""
        assert submitted(site) != job, "numbers are not used twice"
        assert site.end(signal.SIGTERM) == 0
        *_, newest = sorted((site.folder / "state.copy" / "backups").glob("*.sqlite"))
        follow(site, by_choice, NAME=newest.stem)
        assert site.get("/status")["fault"] == ""
        assert site.get(f"/jobs/{job}")["status"] == "finished"
        assert site.end(signal.SIGTERM) == 0


@pytest.mark.exhaustive  # Starts the program three times.
def test_the_page_on_upgrades() -> None:
    """A running job goes on over the stop and the start; the copy is a way back."""
    upgrade, _systemd, _standby, back = commands("upgrade.md")
    with a_site() as site:
        site.up()
        job = submitted(site, "sleep 600")
        wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "running", site)
        assert site.end(signal.SIGTERM) == 0
        said = follow(site, [line for line in upgrade if not line.startswith("pip ")])
        assert "The settings are those of the last daemon" in said
        wait_for(lambda: site.get("/status").get("reattached", {}).get("jobs") == 1, site)
        assert site.end(signal.SIGTERM) == 0
        follow(site, [line for line in back if not line.startswith("git ")])
        assert site.get(f"/jobs/{job}")["status"] == "running"
        with Client(site.socket) as client:
            client.post(f"/jobs/{job}/cancel")
        wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "cancelled", site)
        assert site.end(signal.SIGTERM) == 0


@pytest.mark.exhaustive  # Starts the program once, and a job.
def test_the_page_on_uninstalling() -> None:
    """What would go is shown; while a job runs nothing goes; with --down nothing is left."""
    look, remove, with_down, _package = commands("uninstall.md")
    with a_site() as site:
        site.up()
        job = submitted(site, "sleep 600")
        wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "running", site)
        assert "Nothing was changed" in follow(site, look)
        assert site.end(signal.SIGTERM) == 0
        with pytest.raises(AssertionError, match="would go on without a daemon"):
            follow(site, remove)
        follow(site, with_down)
        assert {path.name for path in site.folder.iterdir()} == {"boa.toml", "log"}


def test_the_pages_name_flags_that_exist() -> None:
    """Each `boa` command of the three pages is one of the program's."""
    for page in ("backup-and-restore.md", "upgrade.md", "uninstall.md"):
        for block in commands(page):
            for line in block:
                if line.startswith("boa ") and not line.startswith("boa --version"):
                    verb, flags = line.split()[1], [word for word in line.split() if word.startswith("--")]
                    done = subprocess.run(
                        [sys.executable, "-m", "boa_daemon", verb, "--help"],
                        capture_output=True,
                        text=True,
                        check=True,
                        env={**os.environ, "COLUMNS": "200"},
                    )
                    assert all(flag in done.stdout for flag in flags), line
