"""``boa bench -- COMMAND``: how long a step takes at each width, here or on rented nodes, as a class file.

The command is started as a job's would be, at one width after the other, and stopped after its time. It says
its steps through `boa_daemon.job.report`; the first step, which compiles and warms up, does not count. How
machines are rented for it is in `bench_on`.
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

from boa_daemon.cli.bench_on import BenchOptions, bench_on
from boa_daemon.cli.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.output import print_text, stderr_console
from boa_daemon.errors import InputError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.planning.class_file import gpu_types_text, measured_class
from boa_daemon.units import counted
from policies.model import InstanceType

LOOK_SECONDS, END_SECONDS = 0.1, 10.0
"""How often a run is looked at, and how long it has to end when it is told to."""


def bench(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="What a job would run.")],
    *,
    instance_type: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The machine that this is, as `boa catalog` names it."),
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="TYPE,TYPE", help="Rent these machines, one after the other.")
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option(min=0.01, help="With --on: dollars that it may cost in all.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(metavar="1,2,4", help="Widths. Default: 1, 2, 4, ... of that machine.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long each width is measured.")] = 60.0,
    first_step: Annotated[
        float, typer.Option("--first-step", min=1.0, help="Seconds that the first step may take.")
    ] = 600.0,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a whole job, for the file.")] = 100_000,
    name: Annotated[str, typer.Option(help="Name of the class.")] = "measured",
    write: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="Write the class file there, not to the screen.")
    ] = None,
    code: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --on: a folder to bring to the nodes.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="With --on: a container image to run in.")] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
) -> None:
    """Run a script for a short time at each width, and write the class file of its step times.

    It runs here, or with --on on machines that are rented for it under --max-usd and given back.
    """
    if write is not None and write.exists():
        raise InputError(f"{write} is there already", hint="Name another file, or move it away")
    if (on is None) == (instance_type is None):
        raise InputError(
            "name the machine that this is, or those to rent",
            hint="--instance-type g5.xlarge runs it here, --on g5.xlarge --max-usd 2 --write FILE rents it",
        )
    catalog, ended = Catalog.load(), 0
    names = [word.strip() for word in (on or instance_type or "").split(",")]
    machines = {machine: _widths(gpus, machine) for machine in map(catalog.instance_type, names)}
    if len({machine.gpu_type for machine in machines}) < len(names):
        raise InputError(
            "two of the machines carry the same GPU", hint="Measure them into files of their own"
        )
    if on is not None:
        if max_usd is None or write is None:
            raise InputError(
                "--on takes --max-usd and --write: money, and the file that it is spent for",
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
    """Write a class file, or print it.

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
    """Return the seconds of a step at each width on this machine, and say them."""
    found: dict[int, float] = {}
    for width in widths:
        found[width], done = measure(command, width, seconds=seconds, first_step_seconds=first_step)
        said = f"{counted(width, 'GPU')}: {found[width]:.4g} s a step, over {counted(done, 'step')}"
        stderr_console().print(said, highlight=False)
    return found


def _widths(text: str | None, machine: InstanceType) -> list[int]:
    """Return the widths to measure on a machine.

    Raises:
        InputError: when they are none, or more than the machine has.
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
    """Return the seconds of a step at a width, and over how many steps that was measured.

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
    """Return what a job of so many GPUs on one node finds."""
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
    """Wait for the first step and then for the time; return what a step took, and how many were done."""
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
        why = f"it ended with {process.returncode}" if process.poll() is not None else "it still ran"
        raise InputError(
            f"the command reported fewer than two steps: {why}{': ' + tail if tail else ''}",
            hint="Call boa_daemon.job.report(step + 1) after each step, or raise --seconds",
        )
    done = int(last["step"] - first["step"])
    return (last["seconds"] - first["seconds"]) / done, done


def _read(record: Path) -> Mapping[str, float] | None:
    """Return the newest record of the command's progress; None before the first."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(record.read_bytes())
        return {"step": float(found["step"]), "seconds": float(found["seconds"])}
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_SECONDS)
            if number == signal.SIGKILL:
                return
