"""Who may speak at the gate, and who is the gate: one secret, and a token for each start of a job.

A token is HMAC-SHA-256(secret, "job:" + generation + ":" + id), so the gate keeps no list of tokens, a job
cannot speak for another, and a generation that ended speaks no more once its successor is known. The token
never crosses the wire. Each side sends a nonce, and each answers the other's: the job with HMAC(token,
nonce), the gate with HMAC(token, "gate:" + nonce + ":" + the job's nonce), so a job obeys nobody who does not
know the secret. What follows is not encrypted: the network between gate and jobs has to be trusted with sizes
and times.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

PLANNER = "planner"
"""The role of the daemon and of `boa gate status`."""
JOB = "job"


def issue_token(secret: str, *, role: str = JOB, job: str = "", generation: int = 0) -> str:
    """Return the token of a generation of a job, or of the planner."""
    return hmac.new(secret.encode(), f"{role}:{generation}:{job}".encode(), hashlib.sha256).hexdigest()


def new_nonce() -> str:
    """Return a challenge that was never used before."""
    return secrets.token_hex(16)


def prove(token: str, nonce: str) -> str:
    """Return the answer to a challenge."""
    return hmac.new(token.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def as_gate(nonce: str, challenge: str) -> str:
    """Return what the gate has to prove: bound to both nonces, and nothing that a job would ever answer."""
    return f"gate:{nonce}:{challenge}"


def is_proof(answer: str, *, token: str, nonce: str) -> bool:
    """Return whether an answer shows that its sender holds the token, in constant time."""
    return hmac.compare_digest(answer.encode(), prove(token, nonce).encode())


def read_token(path: Path) -> str:
    """Return the secret or the token in a file.

    Raises:
        OSError: when the file cannot be read.
        ValueError: when it is empty.
    """
    text = path.read_text(encoding="utf-8").strip()
    if not text:
        raise ValueError(f"{path} is empty; it should hold a token")
    return text


def write_token(path: Path, token: str) -> None:
    """Write a token to a new file that only its owner can read.

    Raises:
        OSError: when the file exists or cannot be written.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")


def read_or_make_secret(path: Path) -> str:
    """Return the gate's secret; on the first start, make it.

    Raises:
        OSError: when the file cannot be read or made.
        ValueError: when it is empty.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # If another process is quicker, its secret counts.
        with contextlib.suppress(FileExistsError):
            write_token(path, secrets.token_hex(32))
    return read_token(path)
