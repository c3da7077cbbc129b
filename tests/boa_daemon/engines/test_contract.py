"""What every engine does, whatever it runs jobs with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_bench import NUMPY, Bench, numpy_loss, script, until
from engine_worlds import ENGINES

from boa_daemon.testing import a_node
from boa_daemon.tick.ports import Accepted, Refused, Runner

PATIENT = "--steps 100000 --pause 0.005"


@pytest.fixture(params=list(ENGINES))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """An engine of each kind, with its nodes prepared, and a way to have a second one after it died."""
    with ENGINES[request.param](tmp_path / "root") as make:
        workdir = tmp_path / "work"
        workdir.mkdir()
        bench = Bench(engine=make(), workdir=workdir)
        nodes = [a_node(name) for name in bench.nodes]
        until(lambda: set(bench.engine.prepare(nodes).values()) == {Accepted()})
        bench.again = make  # type: ignore[attr-defined]
        yield bench
        for job, report in bench.engine.poll().items():
            if not report.is_over:
                bench.engine.kill(job, report.generation)
                bench.wait(lambda report: report.is_over)


def test_a_job_goes_from_1_to_2_to_4_to_1_workers_and_loses_no_step(bench: Bench) -> None:
    """Every step is done once, and the final loss is that of an uninterrupted run."""
    bench.admit(f"{NUMPY} {PATIENT}")
    done = 0
    for width in (1, 2, 4):
        bench.start(width)
        bench.wait_step(done + 5)
        bench.stop()
        end = bench.wait_end()
        done = end.step or 0
        assert end.phase == "stopped", end
        assert end.manifest is not None
        assert (end.manifest.generation, end.manifest.step, end.lost_steps) == (bench.generation, end.step, 0)
    bench.admit(f"{NUMPY} --steps {done + 10}")
    bench.start(1)
    end = bench.wait_end()

    assert (end.phase, end.step) == ("finished", done + 10)
    assert end.loss == pytest.approx(numpy_loss(done + 10), rel=1e-9)
    assert [end.gpus for end in bench.ends] == [1, 2, 4, 1]


def test_a_job_over_two_nodes_is_one_unit_on_each(bench: Bench) -> None:
    """Both units get the same generation and their own rank, meet, and stop together."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(4, nodes=2)
    bench.wait_step(5)
    bench.stop()
    end = bench.wait_end()

    assert end.phase == "stopped"
    assert end.lost_steps == 0
    assert "on 4 workers" in bench.printed()


def test_the_environment_says_who_and_where(bench: Bench) -> None:
    """The names that `interfaces.md` gives, and the GPUs of the node and no others."""
    names = ["JOB_ID", "GENERATION", "GPUS", "NODES", "NODE_RANK", "GPUS_PER_NODE"]
    names += ["CHECKPOINT_DIR", "PROGRESS_FILE", "GATE"]
    end = bench.run_to_end(
        script(f"import os\nfor name in {names}: print(name, os.environ['BOA_' + name])"), gpus=2
    )

    said = dict(line.split(" ", 1) for line in end.last_lines)
    assert {name: said[name] for name in names[:6]} == {
        "JOB_ID": "a", "GENERATION": "1", "GPUS": "2", "NODES": "1", "NODE_RANK": "0", "GPUS_PER_NODE": "2",
    }  # fmt: skip
    assert end.phase == "finished"


def test_orders_may_come_twice_and_late(bench: Bench) -> None:
    """What runs already is accepted; what is stopped already too; an older or a parallel one is refused."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(1)
    assert bench.engine.start(bench.order(1)) == Accepted()
    assert isinstance(bench.engine.start(bench.order(2, generation=2)), Refused)
    bench.wait_step(2)
    bench.stop()
    bench.stop()
    first = bench.wait_end()
    bench.stop()
    assert bench.report() == first

    bench.start(2)
    assert isinstance(bench.engine.start(bench.order(1, generation=1)), Refused)
    bench.wait_step(4)
    bench.engine.kill("a", 1)
    assert bench.report().phase == "running"


def test_a_job_that_was_not_admitted_is_refused(bench: Bench) -> None:
    """Nobody knows what to run."""
    bench.generation = 1

    assert isinstance(bench.engine.start(bench.order(1)), Refused)


def test_a_job_that_ignores_its_stop_is_ended_when_its_grace_is_over(bench: Bench) -> None:
    """A hard stop: without a manifest, the steps that it reported are lost, and the evidence says so."""
    bench.admit(
        script(
            "import signal, time\nfrom boa_daemon import job\njob.report(1)\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "for step in range(2, 9): job.report(step)\ntime.sleep(600)"
        ),
        stop_grace_seconds=0.5,
    )
    bench.start(1)
    bench.wait_step(8)
    bench.stop()
    end = bench.wait_end()

    assert (end.phase, end.manifest, end.lost_steps) == ("stopped", None, 8)
    assert "by force" in end.evidence


def test_a_kill_needs_no_grace(bench: Bench) -> None:
    """It ends at once, and the checkpoint before stands."""
    bench.admit(f"{NUMPY} {PATIENT} --every 5")
    bench.start(2)
    step = bench.wait_step(6).step or 0
    bench.engine.kill("a", 1)
    end = bench.wait_end()

    assert (end.phase, end.cause) == ("failed", "killed")
    assert end.manifest is not None
    assert end.manifest.step >= step - 5
    assert end.lost_steps == (end.step or 0) - end.manifest.step


def test_logs_are_read_from_any_byte_on_and_stay(bench: Bench) -> None:
    """Pieces join to the whole, the end is empty, and older generations can still be read."""
    bench.run_to_end("echo one; echo two")
    first = bench.engine.logs("a")
    assert first.text == "one\ntwo\n"
    assert bench.engine.logs("a", since=4).text == "two\n"
    assert bench.engine.logs("a", since=first.next_offset).text == ""

    bench.run_to_end("echo three")
    assert bench.engine.logs("a").text == "three\n"
    assert bench.engine.logs("a", generation=1).text == "one\ntwo\n"


def test_a_command_that_is_not_there_is_not_tried_again(bench: Bench) -> None:
    """What another try could not mend is told from what it could (all causes: `test_local`)."""
    end = bench.run_to_end("trane.py --fast")

    assert (end.phase, end.cause, end.is_retryable) == ("failed", "missing-command", False), end


def test_a_result_file_that_is_not_there_is_no_success(bench: Bench) -> None:
    """Exit code 0 is not enough where a result was asked for."""
    assert bench.run_to_end("true", result="model.bin").cause == "no-result"
    assert bench.run_to_end("touch model.bin", result="model.bin").phase == "finished"


def test_an_engine_that_comes_back_finds_what_runs(bench: Bench) -> None:
    """The first engine object is gone; a second one reports, stops and goes on where it was."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(2)
    step = bench.wait_step(3).step or 0
    again: Callable[[], Runner] = bench.again  # type: ignore[attr-defined]
    bench.engine = again()
    found = bench.engine.reattach()["a"]
    assert (found.generation, found.gpus) == (1, 2)
    assert found.phase in ("running", "starting", "unknown")

    bench.wait_step(step + 1)
    bench.stop()
    assert bench.wait_end().lost_steps == 0
    bench.start(1)
    bench.wait_step(step + 4)


def test_a_forgotten_job_is_in_no_report(bench: Bench) -> None:
    """Neither now nor after coming back; one that runs stays known."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(1)
    bench.engine.forget("a")
    bench.wait_step(1)
    bench.stop()
    bench.wait_end()
    bench.engine.forget("a")

    assert "a" not in bench.engine.poll()
    again: Callable[[], Runner] = bench.again  # type: ignore[attr-defined]
    bench.engine = again()
    assert "a" not in bench.engine.reattach()
