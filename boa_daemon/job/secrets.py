"""Secrets of a job: references in files, values only in the environment of the running command.

    env:NAME                a line NAME=VALUE of the daemon's secret store, a file of mode 0600
    ssm:/path/name          a parameter of SSM, decrypted
    secretsmanager:ARN      the text of a secret of Secrets Manager

The keeper reads the values with the rights of its machine; on a rented node, with the role of that node. A
value is never written to a file, sent, or passed as an argument of a command.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

ASK_SECONDS = 60.0
MOST_STORE_BYTES = 1_000_000
REFERENCE = re.compile(
    r"env:[A-Za-z_][A-Za-z0-9_]*"
    r"|ssm:/[A-Za-z0-9_./-]{1,1000}"
    r"|secretsmanager:arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]{1,512}"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretMissing(RuntimeError):
    """A secret cannot be read; the message names its reference and never a value."""


def aws_variables(region: str) -> dict[str, str]:
    """Return the variables by which every version of the AWS command line uses a region; none without one."""
    return {"AWS_REGION": region, "AWS_DEFAULT_REGION": region} if region else {}


def values_of(references: Mapping[str, str], store: str, *, region: str = "") -> dict[str, str]:
    """Return the values of secrets by variable name; `store` is the path of the file for `env:` references.

    Raises:
        SecretMissing: when a secret cannot be read.
    """
    return {name: _value(reference, store, region) for name, reference in references.items()}


def _value(reference: str, store: str, region: str) -> str:
    kind, _, rest = reference.partition(":")
    if rest.startswith("arn:"):
        region = rest.split(":")[3]
    if kind == "env":
        kept = read_store(Path(store)) if store else {}
        if rest not in kept:
            raise SecretMissing(f"{reference}: the daemon's secret store has no {rest}")
        return kept[rest]
    if kind == "ssm":
        words = ["ssm", "get-parameter", "--with-decryption", "--name", rest, "--query", "Parameter.Value"]
    else:
        words = ["secretsmanager", "get-secret-value", "--secret-id", rest, "--query", "SecretString"]
    return _asked(reference, [*words, "--output", "text"], region)


def _asked(reference: str, words: list[str], region: str) -> str:
    """Return the value of a secret from the AWS command line."""
    try:
        done = subprocess.run(
            ["aws", *words],
            env={**os.environ, **aws_variables(region)},
            capture_output=True,
            text=True,
            check=False,
            timeout=ASK_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SecretMissing(f"{reference}: {type(error).__name__} of the aws command") from None
    if done.returncode != 0:
        raise SecretMissing(f"{reference}: {done.stderr.strip()[-300:]}")
    return done.stdout.removesuffix("\n")


def read_store(file: Path) -> dict[str, str]:
    """Return the secrets of a store: lines of NAME=VALUE; empty lines and lines beginning with # are skipped.

    Raises:
        SecretMissing: when the file cannot be read, other users can read it, it is too large, a line is
            malformed, or a name has two values.
    """
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            raise SecretMissing(f"{file} is no file")
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise SecretMissing(f"others can read {file}: chmod 600 {file}")
        data = file.read_bytes()
        if len(data) > MOST_STORE_BYTES:
            raise SecretMissing(f"{file} has more than {MOST_STORE_BYTES:,} bytes")
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise SecretMissing(f"{file} cannot be read: {type(error).__name__}") from None
    found: dict[str, str] = {}
    # `splitlines` would cut a value at signs that end no line of a file, such as a form feed or U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        name, equals, value = line.removesuffix("\r").partition("=")
        name = name.strip()
        if not line.strip() or line.startswith("#"):
            continue
        if not equals or not _NAME.fullmatch(name) or set("\0\r") & set(value):
            raise SecretMissing(f"line {number} of {file} is not NAME=VALUE")
        if found.setdefault(name, value) != value:
            raise SecretMissing(f"line {number} of {file} gives {name} another value")
    return found
