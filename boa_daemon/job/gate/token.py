"""Authentication between the gate and jobs: one secret of the gate, and a token for each generation of a job.

A token is HMAC-SHA-256(secret, "job:" + generation + ":" + id). So the gate keeps no list of tokens, a job
cannot act for another, and an old generation is refused once its successor is known. The token never crosses
the wire. Each side sends a nonce and answers the other's: the job with HMAC(token, nonce), the gate with
HMAC(token, "gate:" + nonce + ":" + the job's nonce). So a job obeys only a gate that knows the secret. The
frames after the handshake are not encrypted: the network between gate and jobs must be trusted with sizes and
times.
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
    """Return the token for a generation of a job, or for the planner."""
    return hmac.new(secret.encode(), f"{role}:{generation}:{job}".encode(), hashlib.sha256).hexdigest()


def new_nonce() -> str:
    """Return a random challenge of 128 bits."""
    return secrets.token_hex(16)


def prove(token: str, nonce: str) -> str:
    """Return the answer to a challenge."""
    return hmac.new(token.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def as_gate(nonce: str, challenge: str) -> str:
    """Return the gate's challenge text: it binds both nonces, and a job never answers a text of this form."""
    return f"gate:{nonce}:{challenge}"


def is_proof(answer: str, *, token: str, nonce: str) -> bool:
    """Return whether an answer proves that its sender has the token; compares in constant time."""
    return answer.isascii() and hmac.compare_digest(answer, prove(token, nonce))


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
    """Return the gate's secret; create it on the first start.

    Raises:
        OSError: when the file cannot be read or created.
        ValueError: when the file is empty.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        # If another process has created the file meanwhile, its secret is used.
        with contextlib.suppress(FileExistsError):
            write_token(path, secrets.token_hex(32))
    return read_token(path)
