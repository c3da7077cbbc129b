"""The table of commands matches the commands, and start-up stays fast."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from boa_daemon.cli import app
from boa_daemon.cli.verbs import VERBS

BARE = "import typer; app = typer.Typer(); app.command()(lambda: None); app()"
"""A program of one command, with the same library."""
MOST_TIMES = 1.6
"""0.4 s where such a program takes 0.25."""


@pytest.mark.parametrize("name", sorted(VERBS))
def test_the_summary_of_a_command_is_the_first_line_of_its_help(name: str) -> None:
    """The command also has the name of its entry in the table."""
    root: Any = typer.main.get_command(app)
    command = root.commands[name]
    said = (command.help or "").strip().splitlines()[0]
    assert VERBS[name].summary == said
    assert command.name == name


def test_help_imports_no_command_and_no_heavy_library() -> None:
    """The table of commands is enough to print help."""
    heavy = "{'numpy', 'boto3', 'sqlalchemy', 'pydantic', 'boa_daemon.cli.plan.plan'}"
    said = (
        "import sys; sys.argv = ['boa', '--help']\n"
        "from boa_daemon.cli import main\n"
        "try: main()\n"
        f"except SystemExit: print(sorted({heavy} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    for panel in ("Plan", "Run", "Operate", "Develop"):
        assert f"─ {panel} ─" in done.stdout


def test_the_daemon_imports_no_rarely_used_library() -> None:
    """These libraries and the simulator would take a third of the start."""
    seldom = "{'boto3', 'httpx', 'alembic', 'boa_daemon.sim.wiring', 'scipy.special', 'numba', 'pandas'}"
    said = f"import sys, boa_daemon.serve; print(sorted({seldom} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_client_imports_nothing_of_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the loop, the database and the clouds would take half of the start of `boa status`."""
    monkeypatch.delenv("BOA_ADDRESS", raising=False)
    needless = "{'sqlalchemy', 'botocore', 'boa_daemon.daemon.loop.loop', 'boa_daemon.tick.decide.decision'}"
    said = (
        "import sys; from boa_daemon.api.client import default_address; default_address(); "
        f"print(sorted({needless} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_asking_a_daemon_that_is_there_reads_no_settings_and_brings_no_helper_of_jobs(tmp_path: Path) -> None:
    """`boa status` needs the path of the socket; the settings, numpy and `boa_daemon.job` are for others."""
    (tmp_path / "boa.sock").touch()
    needless = "{'numpy', 'yaml', 'httpx', 'boa_daemon.job', 'boa_daemon.daemon.settings.config'}"
    said = (
        "import sys; from boa_daemon.api.client import default_address; default_address(); "
        f"print(sorted({needless} & set(sys.modules)))"
    )
    environment = {name: text for name, text in os.environ.items() if not name.startswith("BOA_")}
    done = subprocess.run(
        [sys.executable, "-c", said],
        env=environment | {"BOA_DAEMON_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("verb", ["status", "jobs"])
def test_without_a_daemon_and_settings_the_answer_loads_neither(verb: str, tmp_path: Path) -> None:
    """Where no file and no variable sets anything, reading all settings could not name another daemon."""
    needless = "{'numpy', 'yaml', 'httpx', 'boa_daemon.job', 'boa_daemon.daemon.settings.config'}"
    said = (
        f"import sys; sys.argv = ['boa', '{verb}']\nfrom boa_daemon.cli import main\n"
        f"try: main()\nfinally: print(sorted({needless} & set(sys.modules)))"
    )
    environment = {name: text for name, text in os.environ.items() if not name.startswith("BOA_")}
    done = subprocess.run(
        [sys.executable, "-c", said],
        env=environment | {"XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (5, "[]")


def processor_seconds(*words: str) -> float:
    """Return the processor time of one run of Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_takes_little_more_processor_time_than_a_minimal_program() -> None:
    """The best of up to ten runs counts, taken in turns with the minimal program."""
    ours, bare = [], []
    for _ in range(10):
        bare.append(processor_seconds("-c", BARE, "--help"))
        ours.append(processor_seconds("-m", "boa_daemon", "--help"))
        if min(ours) < MOST_TIMES * min(bare):
            break
    assert min(ours) < MOST_TIMES * min(bare)


def complete(line: str, word: int) -> str:
    """Return the completions that bash gets for a line."""
    environment = {
        **os.environ,
        "_BOA_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(word),
    }
    said = "from boa_daemon.cli import app; app(prog_name='boa')"
    return subprocess.run(
        [sys.executable, "-c", said], env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_bash_completes_commands_and_policies() -> None:
    """Without a daemon, no job ids are offered and no error is shown."""
    assert complete("boa fron", 1).split() == ["frontier"]
    assert complete("boa simulate --policy static-s", 3).split() == ["static-srsf"]
    assert complete("boa explain no", 2).strip() == ""
