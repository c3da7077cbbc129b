"""Conditions for starting a process early, and its wait for its turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boa_daemon.job.early_start import (
    NOTE,
    are_all_there,
    does_nothing_before,
    has_room_for,
    read_start_notes,
)

HARMLESS = (
    "import torch",
    "'''Words.'''",
    "WIDTH = 4",
    "def main():\n    open('log', 'w')",
    "class Net(Base):\n    x = 1",
    "if TYPE_CHECKING:\n    import numpy",
    "try:\n    import apex\nexcept ImportError:\n    apex = None",
    "os.environ['TOKENIZERS_PARALLELISM'] = 'false'",
    "os.environ.setdefault('A', 'b')",
    "sys.path.insert(0, '..')",
)
TELLING = (
    "open('log', 'w')",
    "wandb.init()",
    "log = open('log', 'w')",
    "dist.init_process_group('gloo')",
    "with open('log', 'w') as log:\n    pass",
    "for name in names:\n    pass",
    "if begin():\n    pass",
    "if True:\n    os.remove('x')",
    "try:\n    import apex\nexcept ImportError:\n    install()",
    "@register\ndef main():\n    pass",
    "os.environ.setdefault('A', make())",
    "del x",
)


@pytest.mark.parametrize("before", HARMLESS)
def test_imports_and_definitions_have_no_side_effects(before: str) -> None:
    """Such code may precede the import of the helper."""
    assert does_nothing_before(f"{before}\nfrom boa_daemon import job\nopen('x')", before.count("\n") + 2)


@pytest.mark.parametrize("before", TELLING)
def test_other_statements_count_as_side_effects(before: str) -> None:
    """A script with such code before the import of the helper is not started early."""
    assert not does_nothing_before(f"import os\n{before}\nfrom boa_daemon import job", before.count("\n") + 3)


def test_an_early_process_writes_its_note_and_waits_for_the_go_file(tmp_path: Path) -> None:
    """The script's own code runs only after the file exists."""
    own, go = tmp_path / "own" / "n0", tmp_path / "go"
    own.mkdir(parents=True)
    script = tmp_path / "train.py"
    script.write_text("import json\nfrom boa_daemon import job\nprint('works', flush=True)\n")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "BOA_PROGRESS_FILE": str(own.parent / "progress.json"),
        "BOA_NODE_RANK": "0",
        "BOA_GO_FILE": str(go),
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
    }
    process = subprocess.Popen([sys.executable, str(script)], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    while not read_start_notes(own):
        assert process.poll() is None
    os.set_blocking(process.stdout.fileno(), False)
    assert process.stdout.read() is None
    os.set_blocking(process.stdout.fileno(), True)
    (note,) = read_start_notes(own)
    assert note["is_early"] is True
    assert note["bytes"] > 1e6
    assert not are_all_there([note])
    assert are_all_there([note, note])
    go.touch()
    assert process.communicate(timeout=60)[0] == b"works\n"


def test_malformed_start_notes_are_ignored(tmp_path: Path) -> None:
    """A job can write anything into the folder of its notes."""
    (tmp_path / "early-0.json").write_text("[1]")
    (tmp_path / "early-1.json").write_text("{")
    (tmp_path / "early-2.json").write_text(json.dumps({"x": "y" * 5000}))
    assert read_start_notes(tmp_path) == []
    good = {"is_early": True, "bytes": 5, "processes": 1}
    for name in good:
        for odd in (None, "9", "x", 1.5, float("nan"), float("inf"), [], {}, 10**400, -(10**400)):
            (tmp_path / f"{NOTE}1.json").write_text(json.dumps({**good, name: odd}))
            assert read_start_notes(tmp_path) == [], (name, odd)
    assert not are_all_there([])


def test_an_early_start_needs_free_memory() -> None:
    """A process of 1 MB has room, and one of 10^18 bytes has none."""
    assert has_room_for(1e6)
    assert not has_room_for(1e18)
