"""How suspended shells are ended: which signals, by the text of their traps."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from boa_daemon.job.shell_traps import UNTRAPPED, signals_to_end

TERM, HUP = signal.SIGTERM, signal.SIGHUP
AFTER_ALL, AT_ONCE, BOTH = (TERM,), (UNTRAPPED,), (TERM, UNTRAPPED)
TRAPS = {
    "": AFTER_ALL,
    "trap 'echo bye' EXIT": AFTER_ALL,
    "trap 'echo told' TERM": AT_ONCE,
    "trap : 15": AT_ONCE,
    'trap "echo told" TERM INT': AT_ONCE,
    "trap -- 'echo told >&2; stop=1' INT TERM": AT_ONCE,
    "trap 'echo $(date +%s) told' TERM": AT_ONCE,
    "f() { echo told; }; trap f TERM": AT_ONCE,
    "f() { if [ -n x ]; then g; fi; }\ng() {\n  echo told\n}\ntrap f TERM": AT_ONCE,
    "trap 'kill $child; wait $child' TERM": AT_ONCE,
    "trap 'echo told; exit 3' TERM": AFTER_ALL,
    "f() { echo told; end; }; end() { exit 3; }; trap f TERM": AFTER_ALL,
    "trap 'kill -9 $$' TERM": AFTER_ALL,
    "trap 'cp a b' TERM": AFTER_ALL,
    "trap 'echo told > told' TERM": AFTER_ALL,
    "trap 'x=$(cat a)' TERM": AFTER_ALL,
    "f() { cp a b; }; trap f TERM": AFTER_ALL,
    "f() { f; cp a b; }; trap f TERM": AFTER_ALL,
    "trap 'echo told' TERM; trap 'cp a b' TERM": AFTER_ALL,
}
AT_EXIT = {
    "trap 'cp a b' EXIT TERM": BOTH,
    "f() { rm -f x; }; trap f EXIT TERM INT HUP": BOTH,
    "trap 'cp a b' TERM; trap 'echo bye' EXIT": BOTH,
    "trap 'cp a b; exit' TERM; trap 'echo bye' EXIT": AFTER_ALL,
    "trap 'echo told' TERM; trap 'echo bye' EXIT": BOTH,
}
"""Traps of a shell that runs both that for SIGTERM and that for its end, if two signals come at once."""
OF_OTHERS = {
    ("zsh", "f() { rm -f x; }; trap f EXIT TERM"): (HUP,),
    ("zsh", "TRAPTERM() { echo told }"): AT_ONCE,
    ("zsh", "TRAPTERM() { cp a b }"): AFTER_ALL,
    ("ksh", "f() { rm -f x; }; trap f EXIT TERM"): AT_ONCE,
    ("ksh", "trap '' TERM"): AT_ONCE,
    ("bash", "trap '' TERM HUP INT"): AT_ONCE,
    ("bash", 'trap "echo told" SIGTERM'): AT_ONCE,
    ("zsh", "trap '' TERM"): (HUP,),
    ("zsh", "trap '' TERM HUP"): AT_ONCE,
    ("fish", "function f --on-signal TERM; echo told; end"): AT_ONCE,
    ("fish", "trap '' TERM"): AT_ONCE,
    ("dash", "f() { rm -f x; }; trap f EXIT TERM"): AFTER_ALL,
}


@pytest.mark.parametrize("how", ["-c", "file", "stdin"])
@pytest.mark.parametrize(
    ("shell", "traps", "signals"),
    [(shell, text, found) for shell in ("bash", "dash") for text, found in TRAPS.items()]
    + [("bash", text, found) for text, found in AT_EXIT.items()]
    + [(shell, text, found) for (shell, text), found in OF_OTHERS.items()],
)
def test_a_shell_is_ended_after_its_traps_and_before_its_next_command(
    tmp_path: Path, shell: str, traps: str, signals: tuple[signal.Signals, ...], how: str
) -> None:
    """By two signals if it runs both traps; by one without them if nothing is lost; else by SIGTERM."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    text = f"{traps}\n: > ready; /bin/sleep 20; echo it went on"
    (tmp_path / "s").write_text(text)
    words = {"-c": [shell, "-c", text], "file": [shell, "s"], "stdin": [shell]}[how]
    with (tmp_path / "s").open() as script, subprocess.Popen(words, cwd=tmp_path, stdin=script) as process:
        until = time.monotonic() + 20.0
        while not (tmp_path / "ready").exists() and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(0.05)  # It waits for its program.
        found = signals_to_end(process.pid, shell)
        process.kill()
    assert found == signals


def test_a_process_without_text_gets_sigterm() -> None:
    """Nobody knows what its trap does, or it is gone."""
    text = "import signal; signal.signal(15, lambda *_: None); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert signals_to_end(process.pid, "bash") == (TERM,)
        process.kill()
    assert signals_to_end(process.pid, "bash") == (TERM,)


@pytest.mark.parametrize(
    "text",
    [
        'trap "' * 15_000,
        "trap '" * 15_000,
        "trap 'echo told' TERM;" * 5000,
        "trap f TERM; f() { f; " + "g; " * 30_000 + "}",
        "TRAPTERM() {" * 8000,
        "--on-signal TERM;" * 6000,
        "trap f " + "A " * 50_000,
        "trap" + " " * 99_000,
        "trap f0 TERM\n" + "".join(f"f{n}() {{ f{n + 1}; }}\n" for n in range(5000)),
    ],
    ids=str.__len__,
)
def test_a_hostile_script_does_not_hold_up_its_stop(tmp_path: Path, text: str) -> None:
    """Its keeper reads it, and has a grace to keep."""
    (tmp_path / "s").write_text(f"trap 'echo told' TERM; : > ready; /bin/sleep 20; exit\n: {text}")
    with subprocess.Popen(["bash", "s"], cwd=tmp_path) as process:
        until = time.monotonic() + 20.0
        while not (tmp_path / "ready").exists() and time.monotonic() < until:
            time.sleep(0.005)
        began = time.process_time()
        signals_to_end(process.pid, "bash")
        assert time.process_time() - began < 3.0
        process.kill()
