"""Tasks: kept answers, worker processes that die, and Ray clusters."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from some_tasks import a_square, noted

from boa_daemon.errors import InputError
from boa_daemon.tasks.content_hash import code_hash
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.tasks.workers import InlineWorkers, ProcessWorkers


def test_kept_answers_are_exact_and_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    """No task is done twice."""
    first, again, here = (Tasks(kept=AnswerCache(tmp_path)), Tasks(kept=AnswerCache(tmp_path)), a_square(7))

    assert [first.run(a_square, 7), first.run(a_square, 7), again.run(a_square, 7)] == [here] * 3
    assert (first.done, first.found, again.done, again.found) == (1, 0, 0, 1)
    (file,) = tmp_path.glob("*/*.json")
    file.write_text('{"numbers": ')
    assert Tasks(kept=AnswerCache(tmp_path)).run(a_square, 7) == here


def test_another_code_hash_makes_another_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of one version of the code is not used by the next."""
    Tasks(kept=AnswerCache(tmp_path)).run(a_square, 7)
    monkeypatch.setattr("boa_daemon.tasks.tasks.code_hash", lambda: "newer")
    tasks = Tasks(kept=AnswerCache(tmp_path))
    tasks.run(a_square, 7)

    assert (tasks.done, tasks.found) == (1, 0)
    assert len(code_hash()) == 12


@pytest.mark.parametrize("workers", [InlineWorkers(), None], ids=["here", "local:2"])
def test_each_waits_for_items_that_follow_from_answers(workers: InlineWorkers | None) -> None:
    """Every task is done once."""
    with Tasks(workers or ProcessWorkers(2)) as tasks:
        found = dict(
            tasks.each(
                lambda n: tasks.run(a_square, n).numbers[0],
                [1, 2],
                then=lambda n, _answer: [n * 10] if n < 10 else [],
            )
        )
    assert found == {n: a_square(n).numbers[0] for n in (1, 2, 10, 20)}
    assert tasks.done == 4


ELSEWHERE = """
import sys
sys.path.insert(0, {here!r})
from some_tasks import a_square
from boa_daemon.tasks.tasks import Tasks
from boa_daemon.tasks.workers import ProcessWorkers
if __name__ == "__main__":
    with Tasks(ProcessWorkers(2)) as tasks:
        print(tasks.run(a_square, 3).numbers)
"""


def test_workers_import_the_code_of_their_parent(tmp_path: Path) -> None:
    """A package `policies` in the working folder is ignored."""
    folder = tmp_path / "work"
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "__init__.py").write_text("print('mine')\nraise SystemExit(1)\n")
    script = tmp_path / "script.py"
    script.write_text(ELSEWHERE.format(here=str(Path(__file__).parents[2])))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == str(a_square(3).numbers)


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from some_tasks import noted
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.tasks.workers import ProcessWorkers
if __name__ == "__main__":
    with Tasks(ProcessWorkers(2), AnswerCache(Path({folder!r}) / "kept")) as tasks:
        asked = [tasks.submit(noted, {folder!r}, n) for n in range(2000)]
        print("begun", flush=True)
        for future in asked:
            future.result()
"""


def test_after_a_kill_only_unfinished_tasks_are_done_again(tmp_path: Path) -> None:
    """SIGKILL of the parent ends its workers too."""
    script = tmp_path / "child.py"
    script.write_text(CHILD.format(here=str(Path(__file__).parents[2]), folder=str(tmp_path)))
    child = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
    kept = tmp_path / "kept"
    deadline = time.monotonic() + 120.0
    while len(list(kept.glob("*/*.json"))) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.kill()
    child.wait()
    while group_lives(child.pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    done = len(list(kept.glob("*/*.json")))
    begun = [int(file.name) for file in tmp_path.iterdir() if file.name.isdigit()]
    assert 5 <= done <= len(begun) < 2000

    with Tasks(kept=AnswerCache(kept)) as tasks:
        assert [tasks.run(noted, str(tmp_path), n) for n in begun] == [n * n for n in begun]
    notes = [(tmp_path / str(n)).read_text() for n in begun]
    assert notes.count("x") == done
    assert notes.count("xx") == len(begun) - done


def group_lives(group: int) -> bool:
    """Return whether a process group has processes left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_closing_tasks_early_leaves_no_threads() -> None:
    """Twenty tasks are still open when the tasks are closed."""
    before = threading.active_count()
    tasks = Tasks(ProcessWorkers(1))
    tasks._threads = None
    tasks.close()
    with Tasks(ProcessWorkers(2)) as tasks:
        for n in range(20):
            tasks.submit(noted, "/nowhere", n)
    deadline = time.monotonic() + 120.0
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, where: str) -> None:
    """A file has the name of the folder or of its parent."""
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="--out: cannot use"):
        AnswerCache(tmp_path / where)
