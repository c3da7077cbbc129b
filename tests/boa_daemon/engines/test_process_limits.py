"""The `local` engine at a limit of processes or threads: a job starts later, or fails with the reason."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_bench import Bench, script

from boa_daemon.engines import local, local_units
from boa_daemon.engines.local import LocalEngine
from boa_daemon.job.keeper import start_apart

LIMIT = "a limit of processes or threads is reached"
REFUSALS = {
    "the guard": "os.fork = refused_if(lambda: sys._getframe(2).f_code.co_name == '_apart', os.fork)",
    "the keeper": "os.fork = refused_if(lambda: sys._getframe(2).f_code.co_name == '_start', os.fork)",
    "the thread of the output": "from threading import Thread; Thread.start = no_thread(Thread.start)",
    "an errand": "import subprocess; subprocess.Popen.__init__ = refused_if("
    "lambda: sys._getframe(2).f_code.co_name == '_started_errand', subprocess.Popen.__init__)",
}
"""What is refused to the processes of a unit; a file's presence is the limit."""
CUSTOMIZED = """
import errno, os, sys
def refused_if(is_it, do):
    def instead(*args, **options):
        if os.path.exists({limit!r}) and is_it():
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return do(*args, **options)
    return instead
def no_thread(do):
    def instead(self):
        if os.path.exists({limit!r}):
            raise RuntimeError("can't start new thread")
        return do(self)
    return instead
if any("boa_daemon.job.keeper" in word for word in sys.orig_argv):
    {what}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "work").mkdir()
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path / "work")
    yield bench
    for job, report in bench.engine.poll().items():
        if not report.is_over:
            bench.engine.kill(job, report.generation)
            bench.wait_end()


@pytest.mark.first_set(2)
@pytest.mark.parametrize("what", REFUSALS.values(), ids=REFUSALS)
def test_a_job_starts_when_the_limit_passes(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It is the first generation that ends well, and what it has printed is kept."""
    limit, modules = tmp_path / "limit", tmp_path / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(CUSTOMIZED.format(limit=str(limit), what=what))
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{modules}{os.pathsep}{before}")
    limit.touch()
    bench.admit("echo begun; for i in 1 2 3 4; do sleep 1; echo $i; done")
    bench.start()
    time.sleep(2.5)
    bench.engine.poll()
    limit.unlink()
    report = bench.wait_end()
    assert (report.phase, report.generation) == ("finished", 1)
    assert bench.printed().split() == ["begun", "1", "2", "3", "4"]


def test_what_a_job_printed_is_kept_though_no_thread_could_read_it(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit outlasts the job."""
    modules = tmp_path / "modules"
    modules.mkdir()
    what = REFUSALS["the thread of the output"]
    (modules / "sitecustomize.py").write_text(CUSTOMIZED.format(limit="/", what=what))
    monkeypatch.setenv("PYTHONPATH", f"{modules}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    bench.admit("echo begun; sleep 1; echo over")
    bench.start()
    assert bench.wait_end().phase == "finished"
    assert bench.printed().split() == ["begun", "over"]


def test_a_keeper_that_cannot_be_started_for_long_fails_with_the_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try of the daemon counted as a new beginning, so the job ran without a process for ever."""
    monkeypatch.setattr(local_units, "KEEPER_SECONDS", 2.0)
    began = subprocess.Popen

    def refused(argv: object, **options: object) -> object:
        if "boa_daemon.job.keeper" in str(argv):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return began(argv, **options)  # type: ignore[call-overload]

    bench.admit("true")
    with monkeypatch.context() as limit:
        limit.setattr(subprocess, "Popen", refused)
        bench.start()
        assert bench.report().phase == "starting"
        report = bench.wait_end(seconds=20.0)
    assert (report.phase, report.cause) == ("failed", "agent-lost")
    assert LIMIT in report.evidence
    bench.start()
    assert bench.wait_end().phase == "finished"


def test_a_keeper_that_finds_no_room_for_long_fails_with_the_reason(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that the daemon has started is the last for which there is room."""
    modules = tmp_path / "modules"
    modules.mkdir()
    what = f"import boa_daemon.job.keeper; {REFUSALS['the guard']}"
    (modules / "sitecustomize.py").write_text(CUSTOMIZED.format(limit="/", what=what))
    monkeypatch.setattr(local_units, "KEEPER_SECONDS", 4.0)
    monkeypatch.setattr(
        local,
        "start_apart",
        lambda folder, variables: start_apart(folder, {**variables, "PYTHONPATH": at_once(modules)}),
    )
    bench.admit(script("print('hello')"))
    bench.start()
    report = bench.wait_end(seconds=30.0)
    assert (report.phase, report.cause) == ("failed", "agent-lost")
    assert LIMIT in report.evidence


def at_once(modules: Path) -> str:
    """Return a path of modules on which a keeper waits half a second for room."""
    text = (modules / "sitecustomize.py").read_text()
    waits = "time.monotonic = (lambda was: lambda: was() * 100)(time.monotonic)"
    if waits not in text:
        (modules / "sitecustomize.py").write_text(f"{text}    import time; {waits}\n")
    return f"{modules}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
