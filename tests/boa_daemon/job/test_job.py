"""The helper library for training scripts, inside and outside of BOA."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boa_daemon.job.checkpoint import (
    CheckpointFailed,
    StaleGeneration,
    newest_checkpoint,
    read_fence,
    set_fence,
    write_checkpoint,
)
from boa_daemon.job.logs import LogWriter, last_lines, read_log
from boa_daemon.job.run import Run


def a_run(folder: Path, **environment: str) -> Run:
    """Return the first rank of generation 3."""
    values: Mapping[str, str] = {
        "BOA_CHECKPOINT_DIR": str(folder),
        "BOA_GENERATION": "3",
        "BOA_PROGRESS_FILE": str(folder / "progress.json"),
    }
    return Run({**values, **environment})


def test_the_helper_imports_only_the_standard_library() -> None:
    """Neither torch nor numpy is imported."""
    program = (
        "import sys; before = set(sys.modules); import boa_daemon.job, boa_daemon.job.keeper\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        # From Python 3.15 on a part of the standard library that its list leaves out.
        "print(sorted(names - set(sys.stdlib_module_names) - {'_missing_stdlib_info'}))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "['boa_daemon']"


def test_a_failed_save_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    """No partial file stays."""
    first = write_checkpoint(tmp_path, generation=1, step=5, write=lambda file: file.write(b"five"))

    def dies(file: BinaryIO) -> None:
        file.write(b"six, but")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CheckpointFailed, match="step 6: No space left"):
        write_checkpoint(tmp_path, generation=1, step=6, write=dies)
    assert newest_checkpoint(tmp_path) == (first, "")
    assert first.path.read_bytes() == b"five"
    assert sorted(f.name for f in tmp_path.iterdir()) == [".lock", "g1-step5.ckpt", "manifest.json"]


@given(damage=st.binary(max_size=200))
def test_a_damaged_manifest_is_never_used(tmp_path_factory: pytest.TempPathFactory, damage: bytes) -> None:
    """The earlier checkpoint is found, and the problem is reported."""
    folder = tmp_path_factory.mktemp("checkpoints")
    before = write_checkpoint(folder, generation=1, step=1, write=lambda file: file.write(b"1"))
    write_checkpoint(folder, generation=1, step=2, write=lambda file: file.write(b"2"))
    (folder / "manifest.json").write_bytes(damage)
    found, wrong = newest_checkpoint(folder)

    assert found == before
    assert wrong


def test_an_older_generation_cannot_save(tmp_path: Path) -> None:
    """The fence rises and never falls."""
    set_fence(tmp_path, 4)
    set_fence(tmp_path, 2)

    assert read_fence(tmp_path) == 4
    with pytest.raises(StaleGeneration, match="generation 4 was started"):
        a_run(tmp_path).save(1, lambda file: file.write(b"late"))
    assert newest_checkpoint(tmp_path) == (None, "")


def test_the_progress_file_has_a_fixed_size(tmp_path: Path) -> None:
    """The first step does not count for the speed."""
    run = a_run(tmp_path)
    for step in range(1, 101):
        run.report(step, 64.0, 0.5, None)
    text = (tmp_path / "progress.json").read_text()
    record = json.loads(text)

    assert len(text) == 512
    assert (record["generation"], record["step"], record["samples"]) == (3, 100, 99 * 64.0)
    assert record["seconds"] > 0.0


def test_the_size_of_the_last_save_is_reported(tmp_path: Path) -> None:
    """Of a file and of a folder of many files; what a move to another region costs depends on it."""
    run, sizes = a_run(tmp_path), []
    run.report(1, 1.0, None, None)
    sizes.append(json.loads((tmp_path / "progress.json").read_text()).get("checkpoint_bytes"))
    run.save(1, lambda file: file.write(b"x" * 5000), check=lambda path: None)
    run.report(2, 1.0, None, None)
    sizes.append(json.loads((tmp_path / "progress.json").read_text())["checkpoint_bytes"])
    run.save_folder(3, lambda path: (path / "part").write_bytes(b"y" * 7000), None)
    run.finish_save() if run._saving is not None else None
    run.report(4, 1.0, None, None)
    sizes.append(json.loads((tmp_path / "progress.json").read_text())["checkpoint_bytes"])

    assert sizes[:2] == [None, 5000]
    assert 7000 <= sizes[2] < 20_000


@pytest.mark.parametrize("environment", [{"RANK": "1"}, {"BOA_NODE_RANK": "1"}])
def test_only_the_first_rank_writes(tmp_path: Path, environment: dict[str, str]) -> None:
    """Reports and saves of other ranks do nothing, so the same script runs on all ranks."""
    run = a_run(tmp_path, **environment)
    run.report(1, 1.0, None, None)

    assert run.save(1, lambda file: file.write(b"x")) is None
    assert list(tmp_path.iterdir()) == []


def test_a_stop_stays_once_agreed(tmp_path: Path) -> None:
    """After the ranks have agreed to stop, they are not asked again."""
    run = a_run(tmp_path)
    wishes = []

    def agree(wish: bool) -> bool:
        wishes.append(wish)
        return len(wishes) == 2

    assert [run.should_checkpoint(None, agree) for _ in range(4)] == [False, True, True, True]
    assert wishes == [False, False]
    assert run.stop_agreed


def test_periodic_checkpoints_do_not_stop_the_job(tmp_path: Path) -> None:
    """A checkpoint is due every third step after the last save."""
    run = a_run(tmp_path)
    due = []
    for step in range(1, 10):
        run.report(step, 1.0, None, None)
        if run.should_checkpoint(3, None):
            due.append(step)
            run.save(step, lambda file: file.write(b"x"))

    assert due == [3, 6, 9]
    assert not run.stop_agreed


def test_a_script_outside_boa_stops_at_sigterm_and_resumes(tmp_path: Path) -> None:
    """Checkpoints go to ./checkpoints."""
    program = (
        "from boa_daemon import job\nimport os, signal\n"
        "found = job.resume()\nstep = found.step if found else 0\n"
        "while not job.should_checkpoint():\n  step += 1; job.report(step)\n"
        "  if step % 7 == 0: os.kill(os.getpid(), signal.SIGTERM)\n"
        "job.save(step, lambda f: f.write(b'x')); print(step); job.finish()"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BOA_")}
    before = signal.getsignal(signal.SIGTERM)
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for _ in range(2)
    ]  # fmt: skip

    assert said == ["7", "14"]
    assert signal.getsignal(signal.SIGTERM) == before, "this process was not touched"


@given(blocks=st.lists(st.binary(min_size=1, max_size=3000), max_size=30), since=st.integers(0, 40_000))
def test_a_log_is_read_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[bytes], since: int
) -> None:
    """Reading from any byte gives the kept part without a gap, and the number of lost bytes before it."""
    folder = tmp_path_factory.mktemp("log")
    log = LogWriter(folder, 8192)
    for block in blocks:
        log.write(block)
    log.close()
    whole = b"".join(blocks)
    found, after, gone = read_log(folder, since)

    begins = max(since, since + gone)
    assert found == whole[begins:]
    assert after == max(begins, min(len(whole), begins + len(found)))
    assert len(whole) - sum(f.stat().st_size for f in folder.iterdir()) <= max(0, len(whole) - 8192)
    assert len(last_lines(folder, 3)) <= 3


class Uncountable:
    """No number, and not even printable."""

    def __repr__(self) -> str:
        return "something\nelse"


@pytest.mark.parametrize("name", ["step", "samples", "loss", "gradient_noise"])
@pytest.mark.parametrize(
    "value",
    ["text", b"x", [1.0], {}, object(), Uncountable(), float("nan"), float("inf"), 10**400, None, 1j, ()],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_no_report_ends_training(
    name: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is no number is left out, and said once; the rest of the report is written."""
    run = a_run(tmp_path)
    run.report(1, 0.0, None, None)
    arguments: dict[str, object] = {
        "step": 2,
        "samples": 3.0,
        "loss": 0.5,
        "gradient_noise": 1.5,
        name: value,
    }
    for _ in range(2):
        run.report(**arguments)
    record = json.loads((tmp_path / "progress.json").read_text())

    assert record["step"] == (1 if name == "step" else 2)
    assert capsys.readouterr().err.count("boa: ") <= 1


FRAMEWORKS = pytest.mark.frameworks


@pytest.mark.parametrize(
    "kind",
    [
        "numpy",
        "numpy array",
        pytest.param("torch", marks=FRAMEWORKS),
        pytest.param("bfloat16", marks=FRAMEWORKS),
        pytest.param("grad", marks=FRAMEWORKS),
        "fraction",
        "decimal",
        "bool",
    ],
)
def test_a_report_takes_numbers_of_any_kind(kind: str, tmp_path: Path) -> None:
    """Of numpy, of torch with a gradient or on a lesser type, of the standard library."""
    import decimal
    import fractions

    import numpy

    if kind in ("torch", "bfloat16", "grad"):
        import torch

    makers = {
        "numpy": numpy.float32,
        "numpy array": lambda x: numpy.array([x]),
        "torch": lambda x: torch.tensor(x, dtype=None),
        "bfloat16": lambda x: torch.tensor(x, dtype=torch.bfloat16),
        "grad": lambda x: torch.tensor(float(x), requires_grad=True),
        "fraction": fractions.Fraction,
        "decimal": decimal.Decimal,
        "bool": float,
    }
    make = makers[kind]
    run = a_run(tmp_path)
    run.report(numpy.int64(1), 0.0, None, None)
    step = torch.tensor(2) if kind == "torch" else numpy.int32(2)
    run.report(step, make(64.0), make(0.5), make(2.0))
    record = json.loads((tmp_path / "progress.json").read_text())

    assert [record[key] for key in ("step", "samples", "loss", "gradient_noise")] == [2, 64.0, 0.5, 2.0]


TOLD_WHILE_IT_LOADS = """
import os, signal
from boa_daemon import job
def load(path): os.kill(os.getpid(), signal.SIGTERM)
for step in job.steps(100, load=load, save=lambda file: file.write(b"x"), every=3):
    print("step", step, flush=True)
print("told" if job.should_stop() else "not told")
"""


def test_a_stop_before_the_first_step_waits_for_no_step(tmp_path: Path) -> None:
    """It may take longer than the grace, and what it did would be lost; what was loaded is saved already."""
    write_checkpoint(tmp_path, generation=1, step=7, write=lambda file: file.write(b"x"))
    places = {"BOA_CHECKPOINT_DIR": str(tmp_path), "BOA_PROGRESS_FILE": str(tmp_path / "progress")}
    done = subprocess.run(
        [sys.executable, "-c", TOLD_WHILE_IT_LOADS],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "told\n"
    assert not (tmp_path / "progress.done").exists()


def test_what_comes_out_of_a_pipe_is_in_the_log_or_still_in_the_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it passes through the keeper, which may be killed with what it has read."""
    reader, writer = os.pipe()
    log = LogWriter(tmp_path, limit_bytes=4096)

    def no_read(*_: object) -> bytes:
        raise AssertionError("it was read")

    with monkeypatch.context() as patched:
        patched.setattr(os, "read", no_read)
        for number in range(1000):
            os.write(writer, f"line {number}\n".encode())
            assert log.take(reader)
        os.write(writer, b"begun")
        assert log.take(reader)
    log.close()
    log = LogWriter(tmp_path, limit_bytes=4096)  # Another keeper's.
    log.write_line("of the keeper")
    os.close(writer)
    assert not log.take(reader)
    os.close(reader)
    log.close()
    block, end, gone = read_log(tmp_path, 0)
    assert gone > 0
    assert end == sum(len(f"line {number}\n") for number in range(1000)) + len("begun\nof the keeper\n")
    assert block.endswith(b"line 998\nline 999\nbegun\nof the keeper\n")


@pytest.mark.parametrize("at", [3, 1_500])
def test_output_comes_out_of_a_pipe_with_any_number(tmp_path: Path, at: int) -> None:
    """`select` knows descriptors below 1,024 only."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] <= at:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], at + 1), limits[1]))
    reader, writer = os.pipe()
    high = fcntl.fcntl(reader, fcntl.F_DUPFD, at)
    log = LogWriter(tmp_path, limit_bytes=4096)
    try:
        os.write(writer, b"line\n")
        assert log.take(high)
        os.close(writer)
        assert not log.take(high)
    finally:
        os.close(reader)
        os.close(high)
        log.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert read_log(tmp_path, 0)[0] == b"line\n"


def test_a_line_that_goes_on_in_an_empty_segment_is_ended_before_the_keepers(tmp_path: Path) -> None:
    """A keeper that was killed had just begun another segment."""
    (tmp_path / "out-000000000000000.log").write_bytes(b"begun")
    (tmp_path / "out-000000000000005.log").touch()
    log = LogWriter(tmp_path, limit_bytes=4096)
    log.write_line("of the keeper")
    log.close()
    assert read_log(tmp_path, 0)[0] == b"begun\nof the keeper\n"


def test_output_goes_into_the_log_also_where_the_kernel_cannot_move_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before Python 3.10, and on file systems that do not support it."""
    monkeypatch.delattr(os, "splice", raising=False)
    reader, writer = os.pipe()
    log = LogWriter(tmp_path, limit_bytes=4096)
    os.write(writer, b"begun")
    assert log.take(reader)
    os.close(writer)
    assert not log.take(reader)
    os.close(reader)
    log.close()
    assert read_log(tmp_path, 0)[0] == b"begun"
