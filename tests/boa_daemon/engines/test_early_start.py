"""The early start of a job's next generation: it waits, writes nothing, and can be dropped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from enclosing import can_make_groups
from engine_bench import NUMPY, Bench, numpy_loss, until

from boa_daemon.engines import early_start
from boa_daemon.engines.early_start import drop_units, is_one_script
from boa_daemon.engines.generation_units import unit_name
from boa_daemon.engines.local import LocalEngine
from boa_daemon.job.checkpoint import read_fence
from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.enclosure import group_name
from boa_daemon.job.keeper import READY
from boa_daemon.job.leavings import make_temporary_folder
from boa_daemon.job.processes import carrying, started_ticks
from boa_daemon.job.unit import Unit
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.ports import Accepted

LONG = f"{NUMPY} --steps 100000 --pause 0.005 --every 5"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """An engine with a job that runs on one GPU."""
    (tmp_path / "work").mkdir()
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path / "work")
    yield bench
    bench.engine.kill(bench.job, bench.generation)
    until(lambda: all(report.is_over for report in bench.engine.poll().values()))


def _waits(bench: Bench, gpus: int = 2) -> StartJob:
    """Start a job, let its next generation wait, and return the order of that generation."""
    bench.admit(LONG)
    bench.start(1)
    bench.wait_step(6)
    order = bench.order(gpus, generation=2)
    assert not _engine(bench).ahead(order)
    until(lambda: _engine(bench).ahead(order))
    return order


def _engine(bench: Bench) -> LocalEngine:
    assert isinstance(bench.engine, LocalEngine)
    return bench.engine


def _keeper(bench: Bench, generation: int) -> int:
    """Return the process that keeps a generation's first unit."""
    folder = _engine(bench).layout.unit(bench.job, generation, 0)
    return int(json.loads((folder / "keeper.json").read_text())["pid"])


def _left(bench: Bench, generation: int) -> list[int]:
    """Return the processes of a generation's first unit."""
    return carrying(f"BOA_UNIT={unit_name(_engine(bench).layout, bench.job, generation, 0)}")


def _groups(bench: Bench) -> list[Path]:
    """Return the control groups of the waiting generation's first unit."""
    folder = _engine(bench).layout.unit(bench.job, 2, 0)
    groups = [Path(each) for each in json.loads((folder / "ready").read_text())["group"]]
    assert bool(groups) is can_make_groups()
    return groups


def test_a_waiting_generation_goes_on_in_its_turn(bench: Bench) -> None:
    """The earlier generation trains and saves meanwhile; no step is lost."""
    order = _waits(bench)
    engine, checkpoints = _engine(bench), _engine(bench).layout.checkpoints(bench.job)
    keeper, early = _keeper(bench, 2), set(_left(bench, 2))
    assert early
    step = bench.report().step or 0
    bench.wait_step(step + 10)
    assert read_fence(checkpoints) == 1
    assert not list(checkpoints.glob("g2-*"))
    assert "on 2 workers" not in engine.logs(bench.job, generation=2).text
    bench.stop()
    end = bench.wait_end()
    assert (end.phase, end.lost_steps) == ("stopped", 0)

    bench.generation = 2
    bench.admit(LONG)
    assert engine.start(order) == Accepted()
    bench.wait_step((end.step or 0) + 5)
    assert _keeper(bench, 2) == keeper
    assert early & set(_left(bench, 2))
    bench.stop()
    last = bench.wait_end()
    assert (last.phase, last.lost_steps) == ("stopped", 0)
    bench.admit(f"{NUMPY} --steps {(last.step or 0) + 3}")
    bench.start(1)
    done = bench.wait_end()
    assert done.loss == pytest.approx(numpy_loss((last.step or 0) + 3), rel=1e-9)


def test_a_waiting_generation_of_another_width_is_ended(bench: Bench) -> None:
    """A start with another width ends the waiting keeper and runs normally."""
    _waits(bench, gpus=2)
    bench.stop()
    bench.wait_end()
    before = _keeper(bench, 2)
    bench.start(1)
    bench.wait_step((bench.ends[-1].step or 0) + 2)
    assert _keeper(bench, 2) != before
    assert started_ticks(before) is None


def test_a_waiting_generation_ends_when_its_folder_is_gone(bench: Bench) -> None:
    """The waiting processes end without an order."""
    _waits(bench)
    keeper, groups = _keeper(bench, 2), _groups(bench)
    folder = _engine(bench).layout.generation(bench.job, 2)
    folder.rename(folder.with_name("dropped"))
    until(lambda: started_ticks(keeper) is None and not _left(bench, 2))
    until(lambda: not any(group.exists() for group in groups))


@pytest.mark.parametrize("has_noted", [False, True])
def test_a_dropped_unit_leaves_no_group_and_no_temporary_folder(tmp_path: Path, has_noted: bool) -> None:
    """Its keeper may have made them, and have noted nothing of them yet."""
    generation = tmp_path / "g2"
    unit = Unit(
        name=f"dropped-{os.getpid()}",
        job="a",
        generation=2,
        rank=0,
        run="true",
        folder=generation / "n0",
        workdir=str(tmp_path),
        progress_file="",
        checkpoint_dir=str(tmp_path),
    )
    unit.write()
    group = ControlGroup.make(group_name(unit)) if can_make_groups() else ControlGroup()
    if has_noted:
        said = {"is_started": True, "group": [str(folder) for folder in group.folders]}
        (unit.folder / READY).write_text(json.dumps(said))
    temporary = make_temporary_folder(unit.folder, os.getuid())
    assert temporary is not None
    (temporary / "file").touch()
    drop_units(generation)
    assert not list(tmp_path.iterdir())
    assert not temporary.exists()
    assert not any(folder.exists() for folder in group.folders)


@pytest.mark.skipif(not can_make_groups(), reason="no control groups can be made here")
@pytest.mark.parametrize("papers", ["", "{", "[]", '{"name": 1}'])
def test_a_dropped_unit_ends_though_its_papers_cannot_be_read(tmp_path: Path, papers: str) -> None:
    """What its keeper has noted of its group is enough."""
    folder = tmp_path / "g2" / "n0"
    folder.mkdir(parents=True)
    (folder / "unit.json").write_text(papers)
    group = ControlGroup.make(f"unread-{os.getpid()}")
    said = {"is_started": True, "group": [str(each) for each in group.folders]}
    (folder / READY).write_text(json.dumps(said))
    with subprocess.Popen(["sleep", "600"], preexec_fn=group.enter) as process:  # noqa: PLW1509 - no thread
        drop_units(folder.parent)
        try:
            assert process.wait(timeout=60) == -signal.SIGKILL
        finally:
            process.kill()
    assert not any(each.exists() for each in group.folders)


@pytest.mark.exhaustive  # A rare end that takes several seconds.
def test_a_waiting_generation_that_is_no_longer_asked_for_is_removed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process, folder or control group stays, and the running generation goes on."""
    _waits(bench)
    groups = _groups(bench)
    monkeypatch.setattr("boa_daemon.engines.local.FORGET_SECONDS", 0.0)
    time.sleep(0.01)
    step = bench.report().step or 0
    assert not _left(bench, 2)
    assert not _engine(bench).layout.generation(bench.job, 2).exists()
    assert not any(group.exists() for group in groups)
    bench.wait_step(step + 6)


@pytest.mark.first_set(1)
@pytest.mark.parametrize("has_begun", [False, True])
def test_a_restarted_daemon_ends_or_continues_a_waiting_generation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, has_begun: bool
) -> None:
    """A generation whose start is on disk continues; a generation that only waited is ended."""
    order = _waits(bench)
    if has_begun:
        bench.stop()
        bench.wait_end()

        def die(_self: early_start.WaitingGeneration) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(early_start.WaitingGeneration, "go", die)
        with pytest.raises(KeyboardInterrupt):
            bench.engine.start(order)
    again = LocalEngine(_engine(bench).layout.root)
    reports = again.reattach()
    bench.engine = again
    if has_begun:
        bench.generation = 2
        assert reports[bench.job].generation == 2
        bench.wait_step((bench.ends[-1].step or 0) + 2)
    else:
        assert reports[bench.job].generation == 1
        assert not _left(bench, 2)
        bench.wait_step((reports[bench.job].step or 0) + 6)


@pytest.mark.exhaustive  # Each case runs a full job.
@pytest.mark.parametrize("what", ["keeper", "command"])
def test_a_waiting_generation_that_died_is_started_in_its_turn(bench: Bench, what: str) -> None:
    """A killed keeper is replaced, and a killed command is started by the same keeper."""
    order = _waits(bench)
    keeper = _keeper(bench, 2)
    victims = [keeper] if what == "keeper" else [pid for pid in _left(bench, 2) if pid != keeper]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    bench.stop()
    bench.wait_end()
    bench.generation = 2
    bench.engine.start(order)
    bench.wait_step((bench.ends[-1].step or 0) + 2)
    assert (_keeper(bench, 2) == keeper) == (what == "command")


@pytest.mark.exhaustive  # Three jobs; quick tests check the rules themselves.
@pytest.mark.parametrize("how", ["without the helper", "with more in its command", "after a call"])
def test_a_command_with_possible_side_effects_does_not_start_early(
    bench: Bench, how: str, tmp_path: Path
) -> None:
    """The engine prepares the next generation, but runs nothing of its command before its turn."""
    script, marks = tmp_path / "train.py", tmp_path / "work" / "marks"
    text = {
        "without the helper": "import time\nopen('marks', 'a').write('x')\ntime.sleep(600)\n",
        "with more in its command": "from boa_daemon import job\nimport time\nopen('marks', 'a').write('x')\n"
        "job.report(1)\ntime.sleep(600)\n",
        "after a call": "import time\nopen('marks', 'a').write('x')\nfrom boa_daemon import job\n"
        "job.report(1)\ntime.sleep(600)\n",
    }[how]
    script.write_text(text)
    more = "true; " if how == "with more in its command" else ""
    bench.admit(f"{more}{NUMPY.split()[0]} {script}")
    bench.start(1)
    until(marks.exists)
    order = bench.order(2, generation=2)
    until(lambda: _engine(bench).ahead(order))
    assert marks.read_text() == "x"
    bench.engine.kill(bench.job, 1)
    bench.wait_end()
    bench.generation = 2
    bench.engine.start(order)
    until(lambda: marks.read_text() == "xx")


def test_commands_that_are_a_single_script_are_recognised() -> None:
    """Such a command has no effect before the script's first line."""
    for run in (
        "python train.py",
        "torchrun --nproc-per-node 2 train.py --lr $LR --out ${BOA_DATA_DIR}/x",
        "OMP_NUM_THREADS=4 exec /usr/bin/python3.11 -m torch.distributed.run src/train.py",
        "accelerate launch train.py",
    ):
        assert is_one_script(run), run
    for run in (
        "rm -rf out; python train.py",
        "python prepare.py && python train.py",
        "python train.py > log",
        "python train.py --seed $(date +%s)",
        "bash run.sh",
        "python -m package.train",
        "python 'train.py",
        "",
    ):
        assert not is_one_script(run), run
