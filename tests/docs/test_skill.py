"""The skill for agents names commands, flags and fields that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from boa_daemon.cli import app

SKILL = (Path(__file__).parents[2] / "examples" / "skill" / "boa" / "SKILL.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"`boa ([a-z][^`]*)`", SKILL)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_skill_exists_with_its_flags(command: str) -> None:
    """An agent types what it reads."""
    verb, *words = command.split()
    found = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    while words and words[0] in getattr(found, "commands", {}):
        found = found.commands[words.pop(0)]
    flags = {flag for option in found.params for flag in option.opts}
    assert [word for word in words if word.startswith("--") and word not in flags] == []


def test_the_skill_has_the_head_that_assistants_read() -> None:
    """Its name is that of the folder, and its description says when to use it."""
    head = re.match(r"---\nname: boa\ndescription: (.+)\n---\n", SKILL)
    assert head is not None
    assert len(head[1]) < 1024
