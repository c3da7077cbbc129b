"""Help of a verb from its declaration alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from boa_daemon.cli import verbs
from boa_daemon.cli.verbs import VERBS

SLOW = {"numpy", "scipy", "pydantic", "httpx", "boto3", "sqlalchemy", "yaml", "fastapi", "rich.live"}
"""What no help needs."""
VERB_FILES = tuple(
    f"boa_daemon.{room}." for room in ("cli.plan", "cli.run", "cli.operate", "cli.develop", "lab.verbs")
)
NAMES_POLICIES = {"simulate"}
"""Verbs whose help has a sentence of each policy, which the policies' modules say."""


PROGRAM = f"""
import os, sys
from boa_daemon.cli import main
for name in sys.argv[1:]:
    if os.fork():
        assert os.wait()[1] == 0, name
        continue
    sys.argv = ["boa", name, "--help"]
    try:
        main()
    finally:
        print(name, *({SLOW!r} & set(sys.modules)), file=sys.stderr, flush=True)
"""


@pytest.fixture(scope="module")
def slow_modules_of_help() -> dict[str, set[str]]:
    """Return the slow modules that a new process loads to print the help of each verb.

    Each verb is asked in a fork of a process that has loaded no more than the command itself.
    """
    words = [sys.executable, "-c", PROGRAM, *VERBS]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stderr.splitlines()
    return {name: set(slow) for name, *slow in map(str.split, said)}


def described(command: Any) -> Iterator[tuple[Any, ...]]:
    """Yield what help prints of a command, and of the commands of a group."""
    yield command.name, command.help
    for option in command.params:
        default = str(option.default)
        yield (
            option.name,
            option.opts,
            option.secondary_opts,
            default,
            option.metavar,
            getattr(option, "help", None),
        )
    for own in getattr(command, "commands", {}).values():
        yield from described(own)


@pytest.mark.parametrize("name", VERBS)
def test_help_is_that_of_the_whole_verb(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option has its names, default and sentence, though the verb was not imported."""
    module = "boa_daemon." + VERBS[name].target.partition(":")[0]
    whole = list(described(verbs._command(name, VERBS[name])))
    # A file of another verb may hold a command of a group.
    for other in [one for one in sys.modules if one == module or one.startswith(VERB_FILES)]:
        monkeypatch.delitem(sys.modules, other)
    alone = list(described(verbs._command(name, VERBS[name], is_help=True)))
    assert module not in sys.modules
    assert alone == whole


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", VERBS)
def test_help_loads_nothing_slow(name: str, slow_modules_of_help: dict[str, set[str]]) -> None:
    """`boa VERB --help` takes about the processor time of `boa --help`, which loads none of these."""
    assert slow_modules_of_help[name] <= ({"numpy", "scipy"} if name in NAMES_POLICIES else set())


def test_help_after_two_dashes_is_of_the_other_program() -> None:
    """`boa exec JOB -- ls --help` runs the whole verb, which here finds no daemon."""
    environment = os.environ | {"BOA_ADDRESS": "/nowhere/boa.sock"}
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon", "exec", "job-1", "--", "ls", "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "")
    assert "no daemon listens" in done.stderr
