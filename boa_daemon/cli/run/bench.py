"""``boa bench -- COMMAND``: measure the step time at each width and write it as a class file.

The command runs as a job's command would, at one width after another, each for a fixed time. It reports its
steps through `boa_daemon.job.report`; the first step, which compiles and warms up, does not count. `bench_on`
measures on rented machines.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.common.output import print_text, stderr_console
from boa_daemon.cli.run.bench_on import BenchOptions, bench_on
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.planning.class_file import gpu_types_text, measured_class
from boa_daemon.units import counted
from policies.model import InstanceType

LOOK_SECONDS, END_SECONDS = 0.1, 10.0
"""Seconds between two reads of the progress file, and seconds to end after a signal."""


def bench(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="Command that the job would run.")
    ],
    *,
    instance_type: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Instance type of this machine, as in `boa catalog`."),
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="TYPE,TYPE", help="Rent these instance types, one after another.")
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option(min=0.01, help="With --on: most dollars to spend in total.")
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            metavar="1,2,4", help="GPU counts to measure. Default: 1, 2, 4, ... up to the machine's."
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="Seconds to measure each width.")] = 60.0,
    first_step: Annotated[
        float, typer.Option("--first-step", min=1.0, help="Most seconds until the first step is done.")
    ] = 600.0,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps of a whole job, written to the class file.")
    ] = 100_000,
    name: Annotated[str, typer.Option(help="Name of the job class.")] = "measured",
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE.yaml", help="Write the class file here instead of printing it."),
    ] = None,
    code: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --on: folder of code to copy to the nodes.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="With --on: container image to run in.")] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
) -> None:
    """Measure a command's step time at each GPU count, and write it as a class file.

    It runs on this machine, or with --on on machines rented for it within --max-usd and then returned.
    """
    if write is not None and write.exists():
        raise InputError(f"{write} is there already", hint="Name another file, or move it away")
    if (on is None) == (instance_type is None):
        raise InputError(
            "name the type of this machine, or the types to rent",
            hint="--instance-type g5.xlarge runs it here, --on g5.xlarge --max-usd 2 --write FILE rents it",
        )
    catalog, ended = Catalog.load(), 0
    names = [word.strip() for word in (on or instance_type or "").split(",")]
    machines = {machine: _widths(gpus, machine) for machine in map(catalog.instance_type, names)}
    if len({machine.gpu_type for machine in machines}) < len(names):
        raise InputError("two of the machines have the same GPU type", hint="Measure each into its own file")
    if on is not None:
        if max_usd is None or write is None:
            raise InputError(
                "--on needs --max-usd and --write",
                hint="Add --max-usd 5 --write classes.yaml",
            )
        one = BenchOptions(
            command=command, seconds=seconds, first_step_seconds=first_step, code=code, image=image
        )
        found, ended = bench_on(machines, one, name=name, max_usd=max_usd, config=config, socket=socket)
    else:
        ((machine, widths),) = machines.items()
        found = {machine.gpu_type: _measured_here(command, widths, seconds, first_step)}
    if found:
        where = ", ".join(names)
        note = f"of a whole job; step times by boa bench, {seconds:g} s a width on {where}"
        kinds = {machine.gpu_type: machine for machine in machines if machine.gpu_type in found}
        text = gpu_types_text(kinds) + measured_class(name, found, steps=steps, note=note)
        _write(text, write)
    if ended:
        raise typer.Exit(ended)


def _write(text: str, file: Path | None) -> None:
    """Write a class file, or print it when `file` is None.

    Raises:
        InputError: when it cannot be written.
    """
    if file is None:
        print_text(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the class file: {error.strerror}", file=file) from error
    stderr_console().print(f"wrote {file}", markup=False)


def _measured_here(
    command: Sequence[str], widths: Sequence[int], seconds: float, first_step: float
) -> dict[int, float]:
    """Measure and print the seconds per step at each width on this machine."""
    found: dict[int, float] = {}
    for width in widths:
        found[width], done = measure(command, width, seconds=seconds, first_step_seconds=first_step)
        said = f"{counted(width, 'GPU')}: {found[width]:.4g} s a step, over {counted(done, 'step')}"
        stderr_console().print(said, highlight=False)
    return found


def _widths(text: str | None, machine: InstanceType) -> list[int]:
    """Return the widths to measure on a machine.

    Raises:
        InputError: when a width is not a number from 1 to the GPUs of the machine.
    """
    most = machine.gpus
    if text is None:
        return [width for width in (2**power for power in range(most.bit_length())) if width <= most]
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= most for word in words):
        raise InputError(
            f"--gpus {text!r} must list widths from 1 to {most}, which {machine.name} has",
            hint="Write --gpus 1,2,4",
        )
    return sorted({int(word) for word in words})


def measure(
    command: Sequence[str], width: int, *, seconds: float, first_step_seconds: float
) -> tuple[float, int]:
    """Return the seconds per step at a width, and the number of steps measured.

    Raises:
        InputError: when the command cannot be started, ends too early, or reports nothing.
    """
    with TemporaryDirectory(prefix="boa-bench-") as folder:
        record, log = Path(folder) / "progress.json", Path(folder) / "log"
        with log.open("wb") as out:
            try:
                process = subprocess.Popen(
                    command,
                    env=_environment(Path(folder), width),
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise InputError(f"cannot start {command[0]}: {error.strerror}") from error
        try:
            return _watched(process, record, log, seconds=seconds, first_step_seconds=first_step_seconds)
        finally:
            _end(process)


def _environment(folder: Path, width: int) -> dict[str, str]:
    """Return the environment of a job on one node with `width` GPUs."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    return {
        **os.environ,
        "BOA_JOB_ID": "bench",
        "BOA_GENERATION": "1",
        "BOA_GPUS": str(width),
        "BOA_GPUS_PER_NODE": str(width),
        "BOA_NODES": "1",
        "BOA_NODE_RANK": "0",
        "BOA_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "BOA_PROGRESS_FILE": str(folder / "progress.json"),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(width))),
        "PET_NPROC_PER_NODE": str(width),
        "PET_NNODES": "1",
        "PET_STANDALONE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }


def _watched(
    process: subprocess.Popen[bytes], record: Path, log: Path, *, seconds: float, first_step_seconds: float
) -> tuple[float, int]:
    """Wait for the first step, measure for `seconds`, and return the seconds per step and the step count."""
    began, first = time.monotonic(), None
    while True:
        found, is_over = _read(record), process.poll() is not None
        if first is None and found is not None:
            first, began = found, time.monotonic()
        waited = time.monotonic() - began
        if is_over or (first is None and waited > first_step_seconds) or (first and waited >= seconds):
            break
        time.sleep(LOOK_SECONDS)
    last = _read(record)
    if first is None or last is None or last["step"] <= first["step"]:
        tail = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        why = (
            f"it exited with code {process.returncode}"
            if process.poll() is not None
            else "it was still running"
        )
        raise InputError(
            f"the command reported fewer than two steps: {why}{': ' + tail if tail else ''}",
            hint="Call boa_daemon.job.report(step + 1) after each step, or raise --seconds",
        )
    done = int(last["step"] - first["step"])
    return (last["seconds"] - first["seconds"]) / done, done


def _read(record: Path) -> Mapping[str, float] | None:
    """Return the newest progress record; None before the first."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(record.read_bytes())
        return {"step": float(found["step"]), "seconds": float(found["seconds"])}
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command's process group: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_SECONDS)
            if number == signal.SIGKILL:
                return
