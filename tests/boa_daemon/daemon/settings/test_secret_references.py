"""Access to secrets: the longest matching entry of `[secrets]` decides who may reference a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.secret_references import check_rights
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

RIGHTS = {
    "env:HF_TOKEN": ["team:vision", "carol"],
    "ssm:/boa/*": ["team:vision"],
    "ssm:/boa/prod/*": ["ann"],
    "secretsmanager:*": [],
}
TEAMS = {"vision": {"members": ["ann", "bob"]}}
MAY = {
    "env:HF_TOKEN": {"ann", "bob", "carol"},
    "env:OTHER": {"ann", "bob", "carol", "dave"},
    "ssm:/boa/x": {"ann", "bob"},
    "ssm:/boa/prod/key": {"ann"},
    "ssm:/boa/prod": {"ann", "bob"},
    "ssm:/other": {"ann", "bob", "carol", "dave"},
    "secretsmanager:arn:aws:x": set(),
}


@pytest.mark.parametrize("reference", sorted(MAY))
@pytest.mark.parametrize("user", ["ann", "bob", "carol", "dave"])
def test_the_longest_matching_entry_decides_who_may_use_a_secret(reference: str, user: str) -> None:
    """An entry lists users and teams; a secret without a matching entry is open to all users."""
    settings = Settings.model_validate({"teams": TEAMS, "secrets": RIGHTS})
    content = {"secrets": {"TOKEN": reference}}
    if user in MAY[reference]:
        check_rights(content, user, settings)
        return
    with pytest.raises(InputError, match=f"secrets: TOKEN: {reference}: user {user} may not") as refused:
        check_rights(content, user, settings)
    assert "[secrets] has it for" in refused.value.hint


def test_an_empty_star_entry_closes_all_secrets_without_an_entry() -> None:
    """The error is about the secret without an entry, not about the allowed one of the same job."""
    settings = Settings.model_validate({"teams": TEAMS, "secrets": {**RIGHTS, "*": []}})
    with pytest.raises(InputError, match="env:OTHER: user ann may not"):
        check_rights({"secrets": {"A": "env:HF_TOKEN", "B": "env:OTHER"}}, "ann", settings)


def test_the_error_for_a_forbidden_secret_does_not_tell_whether_it_exists(tmp_path: Path) -> None:
    """An existing and a missing secret give the same error, and no job of the submission is stored."""
    store = tmp_path / "store"
    store.write_text("HF_TOKEN=x\n")
    store.chmod(0o600)
    given = {
        "engine": {"secrets_file": str(store)},
        "teams": TEAMS,
        "secrets": {"env:HF_TOKEN": ["team:vision"], "env:GONE": ["ann"]},
    }
    play = DaemonInAFolder(tmp_path, ManualClock(1e9), given)
    try:
        free = job_content("free")
        for name in ("HF_TOKEN", "GONE"):
            taken = job_content("taken", secrets={"TOKEN": f"env:{name}"})
            with pytest.raises(InputError, match="user dave may not name it"):
                play.service.submit([free, taken], user="dave")
        assert play.service.jobs()["jobs"] == []
        taken = job_content("a", secrets={"T": "env:HF_TOKEN"})
        assert play.service.submit([taken], user="bob")["jobs"] == ["a-1"]
    finally:
        play.close()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"env:A" = ["team:visoin"]', "there is no team 'visoin'.*vision"),
        ('"HF_TOKEN" = ["ann"]', "'HF_TOKEN' fits no reference.*env:"),
        ('"env:A" = "ann"', "must be a list"),
    ],
)
def test_invalid_entries_in_secrets_are_refused(tmp_path: Path, line: str, said: str) -> None:
    """An unknown team, a key that is no reference and a value that is no list are errors."""
    file = tmp_path / "boa.toml"
    file.write_text(f"[teams.vision]\nmembers = ['ann']\n[secrets]\n{line}\n")
    with pytest.raises(InputError, match=said):
        load_settings(file, environment={})


def test_secrets_may_name_a_team_of_another_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All layers are merged before they are checked."""
    weak, strong = tmp_path / "weak.toml", tmp_path / "strong.toml"
    weak.write_text("[teams.vision]\nmembers = ['ann']\n")
    strong.write_text("[secrets]\n'env:A' = ['team:vision']\n")
    monkeypatch.setattr(
        "boa_daemon.daemon.settings.setting_layers.setting_files", lambda _explicit: [weak, strong]
    )
    assert load_settings(None, environment={}).settings.secrets == {"env:A": ["team:vision"]}
