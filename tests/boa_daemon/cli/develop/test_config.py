"""`boa config`: what changes, what needs consent, and applying it, with a daemon and without one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_site import SETTINGS, Site, a_site, wait_for
from verbs import exit_code

LIMITS = SETTINGS.format(usd=10.0).replace("max_instances = 4", "max_instances = 4\nusd_per_day_cap = 250.0")


def answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, object]:
    """Return the JSON answer of a `boa config` command."""
    assert exit_code(monkeypatch, "config", *words, "--json") == 0
    return dict(json.loads(capsys.readouterr().out))


def test_without_a_daemon_the_next_one_takes_what_was_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The changes are compared with what was applied last; --yes accepts those that loosen limits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    file = Path("boa.toml")
    file.write_text(LIMITS)
    assert answer(monkeypatch, capsys, "apply", "--yes")["is_applied"]
    assert answer(monkeypatch, capsys, "diff")["changes"] == []
    file.write_text(LIMITS.replace("250.0", "400.0"))
    found = answer(monkeypatch, capsys, "diff", "boa.toml")
    assert found["needs_consent"]
    assert found["changes"] == [
        {
            "setting": "[budget] usd_per_day_cap",
            "before": 250.0,
            "after": 400.0,
            "needs_consent": True,
            "why": "it loosens a limit",
        }
    ]
    assert exit_code(monkeypatch, "config", "diff", "--detailed-exitcode") == 10
    capsys.readouterr()
    assert not answer(monkeypatch, capsys, "apply")["is_applied"]
    assert answer(monkeypatch, capsys, "diff")["needs_consent"]
    answer(monkeypatch, capsys, "apply", "--yes")
    assert answer(monkeypatch, capsys, "diff")["changes"] == []


@pytest.mark.exhaustive
def test_a_daemon_keeps_its_limits_through_a_cut_file_a_reload_and_a_restart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file loses its caps: the reload is refused, so is the restart, and a consented change is taken."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    with a_site(LIMITS) as site:
        site.up()
        monkeypatch.chdir(site.folder)
        file = site.folder / "boa.toml"
        file.write_text("[budget]\nusd_per_hour = 10.0\n")
        assert site.process is not None
        site.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "usd_per_day_cap: 250.0 -> 300.0" in site.log, site)
        assert _cap(site) == 250.0
        # The verbs find the daemon, though the file no longer says where it is.
        assert exit_code(monkeypatch, "status") == 0
        assert "the settings stay as they were" in capsys.readouterr().out
        assert site.end(signal.SIGTERM) == 0
        site.up()
        assert _cap(site) == 250.0
        assert "stay in force" in " ".join(site.get("/status")["notes"])
        file.write_text(LIMITS.replace("250.0", "260.0"))
        assert answer(monkeypatch, capsys, "apply", "--yes")["of_running_daemon"]
        wait_for(lambda: _cap(site) == 260.0, site)
        assert site.get("/status")["notes"] == []
        assert site.end(signal.SIGTERM) == 0


def _cap(site: Site) -> float | None:
    """Return the day cap in force after another tick."""
    tick = site.get("/status").get("tick", 0)
    wait_for(lambda: site.get("/status").get("tick", 0) > tick, site)
    cap = site.get("/status")["books"]["day"]["cap_usd"]
    return None if cap is None else float(cap)


def test_the_diff_of_a_broken_file_names_its_line(tmp_path: Path) -> None:
    """Exit code 2, file and line."""
    (tmp_path / "boa.toml").write_text("[budget]\nusd_per_hour = \n")
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon", "config", "diff"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "boa.toml:2" in done.stderr
