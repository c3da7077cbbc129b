"""Tasks: kept answers, worker processes that die, and Ray clusters."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from some_tasks import Answer, a_square, dies, dies_once, in_vain, len_of, noted

from boa_daemon.engines.local import free_port
from boa_daemon.errors import BoaError, InputError
from boa_daemon.tasks.content_hash import code_hash, content_hash
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.tasks.workers import InlineWorkers, ProcessWorkers, RayWorkers, workers_on
from boa_daemon.testing import a_problem, a_trace
from policies.errors import InfeasibleBudget


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


def test_a_content_hash_depends_on_content_alone() -> None:
    """Equal values have equal hashes in every process; different values and types have different hashes."""
    trace = a_trace(0.0, 600.0)
    assert content_hash(trace, {"a", "b", "c"}) == content_hash(a_trace(0.0, 600.0), {"c", "b", "a"})
    unlike = [1, 1.0, True, "1", None, (1,), ((1,),), (1, 1), {"1": 1}, {1: 1}, trace, a_trace(0.0, 601.0)]
    assert content_hash(a_problem()) == content_hash(a_problem())
    unlike += [a_problem(), a_problem(usd_per_gpu_hour=2.0)]
    unlike += [np.array([1]), np.array([1.0]), np.array([[1]]), a_square, in_vain, Answer((1.0,))]
    unlike += [("ab", "c"), ("a", "bc"), {"a": 1, "b": 2}, {"b": 2, "a": 1}, frozenset({1})]
    assert len({content_hash(value) for value in unlike}) == len(unlike)
    words = "from boa_daemon.tasks.content_hash import content_hash as h; print(h(frozenset('abc')))"
    seen = {
        subprocess.run(
            [sys.executable, "-c", words],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in "12"
    }
    assert len(seen) == 1


def test_two_worker_processes_give_the_same_answers(tmp_path: Path) -> None:
    """A task is retried when its worker dies, and fails after three deaths."""
    with Tasks(ProcessWorkers(2), AnswerCache(tmp_path / "kept")) as tasks:
        asked = [tasks.submit(a_square, n) for n in range(5)]
        assert [future.result() for future in asked] == [a_square(n) for n in range(5)]
        assert tasks.run(dies_once, str(tmp_path / "marker")) != os.getpid()
        with pytest.raises(InfeasibleBudget) as refused:
            tasks.run(in_vain, 7.5)
        assert refused.value.least_spend == 7.5
        proxy = MappingProxyType({"a": 1.0})
        assert tasks.run(len_of, proxy) == 1
        with pytest.raises(BoaError, match="a worker died 3 times"):
            tasks.run(dies, 1)


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


@pytest.mark.parametrize("where", ["locla", "local:0", "local:x", "local:", "ray:/host", "https://x"])
def test_an_unknown_place_for_workers_is_refused(where: str) -> None:
    """The error gives the three valid forms."""
    with pytest.raises(InputError, match="local, local:4 or ray://HOST"):
        workers_on(where)


def test_local_workers_have_the_asked_number_of_processes() -> None:
    """`local:1` works in this process; the default is one process per core."""
    assert isinstance(workers_on("local:1"), InlineWorkers)
    assert workers_on("local:3").count == 3
    assert workers_on(None).count == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, where: str) -> None:
    """A file has the name of the folder or of its parent."""
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="--out: cannot use"):
        AnswerCache(tmp_path / where)


@pytest.mark.frameworks
@pytest.mark.exhaustive  # A cluster takes a quarter of a minute to start.
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # Ray leaves files and sockets open.
def test_a_ray_cluster_of_three_nodes_gives_the_same_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code is sent along, and a task is retried when its worker dies."""
    import ray.cluster_utils

    port = free_port()
    # Ray sends the package's code; the tests' own tasks are on the nodes already.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    cluster = ray.cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": port},
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        workers = workers_on(f"ray://127.0.0.1:{port}")
        assert isinstance(workers, RayWorkers)
        with Tasks(workers) as tasks:
            assert workers.count == 3
            asked = [tasks.submit(a_square, n) for n in range(12)]
            assert [future.result() for future in asked] == [a_square(n) for n in range(12)]
            assert tasks.run(dies_once, str(tmp_path / "marker")) != os.getpid()
            with pytest.raises(InfeasibleBudget) as refused:
                tasks.run(in_vain, 7.5)
            assert refused.value.least_spend == 7.5
    finally:
        cluster.shutdown()
