"""`job/gate/token.py`: who may speak for a job, and files that nobody else can read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from boa_daemon.job.gate.token import (
    PLANNER,
    as_gate,
    is_proof,
    issue_token,
    new_nonce,
    prove,
    read_or_make_secret,
    read_token,
    write_token,
)


def test_a_token_is_of_one_secret_role_job_and_generation() -> None:
    """No other words make the same token, also none that contain its separator."""
    words = [
        ("s", {"job": "a"}),
        ("t", {"job": "a"}),
        ("s", {"job": "b"}),
        ("s", {"job": "a", "generation": 1}),
        ("s", {"job": "1:a"}),
        ("s", {"job": "a", "role": PLANNER}),
        ("s", {"role": PLANNER}),
    ]
    tokens = [issue_token(secret, **how) for secret, how in words]  # type: ignore[arg-type]
    assert len(set(tokens)) == len(words)
    assert issue_token("s", job="a") == tokens[0]


def test_a_proof_holds_for_its_token_and_nonce_alone() -> None:
    """A job's answer is never the gate's: a stranger cannot pass one on as the other."""
    token, nonce = issue_token("s", job="a"), new_nonce()
    proof = prove(token, nonce)
    assert is_proof(proof, token=token, nonce=nonce)
    assert not is_proof(proof, token=token, nonce=new_nonce())
    assert not is_proof(proof, token=issue_token("s", job="b"), nonce=nonce)
    assert not is_proof(proof, token=token, nonce=as_gate(nonce, new_nonce()))
    assert as_gate(nonce, "x") != as_gate(nonce, "y")
    assert len({new_nonce() for _ in range(9)}) == 9


@pytest.mark.parametrize("answer", ["", "None", "é", "\ud800", "0" * 10_000])
def test_any_other_text_is_no_proof(answer: str) -> None:
    """Also one that is no text of any encoding, as JSON can hold it."""
    assert not is_proof(answer, token="t", nonce="n")


def test_a_token_is_written_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    """A file that somebody has put there before is refused."""
    file = tmp_path / "token"
    write_token(file, "abc")
    assert (read_token(file), stat.S_IMODE(file.stat().st_mode)) == ("abc", 0o600)
    with pytest.raises(FileExistsError):
        write_token(file, "other")
    file.write_text(" \n")
    with pytest.raises(ValueError, match="is empty; it should hold a token"):
        read_token(file)


def test_the_secret_is_made_once(tmp_path: Path) -> None:
    """Two daemons that start at once have the same one."""
    file = tmp_path / "gate" / "secret"
    made = read_or_make_secret(file)
    assert (len(made) >= 32, read_or_make_secret(file), os.listdir(file.parent)) == (True, made, ["secret"])


def test_a_secret_that_another_process_makes_meanwhile_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not exist when it was looked for."""
    file = tmp_path / "secret"
    write_token(file, "theirs")
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert read_or_make_secret(file) == "theirs"


def test_a_secret_that_exists_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder may be read-only."""
    file = tmp_path / "secret"
    file.write_text("ours")
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: pytest.fail("it wrote"))
    assert read_or_make_secret(file) == "ours"
