"""Workers: this process, processes that may die, and Ray clusters."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from types import MappingProxyType

import pytest
from some_tasks import Answer, a_square, dies, dies_once, in_vain, len_of

from boa_daemon.engines.local import free_port
from boa_daemon.errors import BoaError, InputError
from boa_daemon.tasks.tasks import AnswerCache, Tasks
from boa_daemon.tasks.workers import (
    InlineWorkers,
    ProcessWorkers,
    RayWorkers,
    perform,
    read_answer,
    workers_on,
)
from policies.errors import InfeasibleBudget


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


def test_an_answer_is_json_exact_to_the_last_digit() -> None:
    """What is no answer of the function is refused."""
    answer = perform(pickle.dumps((a_square, (7,))))
    assert json.loads(answer)
    assert read_answer(a_square, answer) == a_square(7)
    assert isinstance(read_answer(a_square, InlineWorkers().answer(pickle.dumps((a_square, (7,))))), Answer)
    for damaged in (b"", b"[1]", b'{"numbers": "x"}'):
        with pytest.raises(ValueError, match=r"."):
            read_answer(a_square, damaged)


def test_ended_workers_take_no_task() -> None:
    """A second end does nothing."""
    workers = ProcessWorkers(2)
    workers.close()
    with pytest.raises(BoaError, match="the workers were ended"):
        workers.answer(pickle.dumps((a_square, (7,))))
