"""Commands beside jobs on Ray, against a fake of Ray's tasks; the contract tests use a real Ray."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine_bench import Bench, until

from boa_daemon.engines.local import LocalEngine
from boa_daemon.engines.ray_job_access import RayJobAccess, run_ray_command
from boa_daemon.tick.facts.ports import Refused, SaidInside


class NodeDied(Exception):
    """What Ray raises for a task whose node is gone."""


def test_a_command_runs_as_a_ray_task_and_a_shell_is_refused(tmp_path: Path) -> None:
    """The command returns its exit code, or that its node gave no answer; the refusal names `boa exec`."""
    engine = LocalEngine(tmp_path / "root")
    bench = Bench(engine=engine, workdir=tmp_path)
    bench.admit("echo ready; sleep 600")
    bench.start(1)
    until(lambda: "ready" in bench.printed())
    pool = ThreadPoolExecutor(1)

    def wait(tasks: list[Future[str]], *, timeout: float) -> tuple[list[Future[str]], list[Future[str]]]:
        assert timeout == 0
        return [task for task in tasks if task.done()], []

    ray: Any = SimpleNamespace(
        wait=wait, get=lambda task: task.result(), exceptions=SimpleNamespace(RayError=NodeDied)
    )
    do: Any = partial(pool.submit, run_ray_command)
    inside = RayJobAccess(
        ray,
        engine._running_at,
        lambda folder, text, seconds: do(str(folder), text, seconds, dict(os.environ)),
    )

    def ended(word: str | Refused) -> SaidInside:
        assert isinstance(word, str)
        found: list[Any] = []
        until(lambda: (said := inside.end(word)) is not None and not found.append(said))  # type: ignore[func-returns-value]
        return found[0]

    said = ended(inside.begin("a", 0, "echo of $BOA_JOB_ID; exit 3", seconds=60.0))
    assert (said.code, said.output) == (3, "of a\n")
    do = partial(pool.submit, lambda *_: (_ for _ in ()).throw(NodeDied()))
    assert ended(inside.begin("a", 0, "true", seconds=60.0)).why == "its node gave no answer: NodeDied"
    way = inside.way("a", 0)
    assert isinstance(way, Refused)
    assert "`boa exec`" in way.reason
    assert isinstance(inside.open("a", 0, "/dev/pts/0", term="xterm", may_use=bool), Refused)
    assert isinstance(inside.begin("a", 5, "true", seconds=1.0), Refused)
    pool.shutdown()
    engine.kill("a", 1)
    bench.wait_end()
    assert isinstance(inside.begin("a", 0, "true", seconds=1.0), Refused)
