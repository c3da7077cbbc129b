"""Fuzz of what is read from elsewhere: mutated files of every kind are refused in a sentence, or read whole.

    python benchmarks/fuzz_imports.py [--files 5000] [--seed 1]

A file that is read is written as BOA's own file and read back: a job, a price or a task that is not the same
is a silent change. Prints per kind the files, how many were refused, and every traceback and change; the exit
code is 1 if there is one. Kinds are those of the tables; the bytes are those of their examples in tests/data.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from boa_daemon.cli.plan.price_kinds import PRICE_KINDS, PriceFlags
from boa_daemon.errors import BoaError
from boa_daemon.inputs.document_file import read_document
from boa_daemon.inputs.other_tasks import TASKS, translate
from boa_daemon.inputs.price_file import read_price_file
from boa_daemon.inputs.price_lists import write_price_list
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.lab.traces.importers import HISTORIES, import_source
from boa_daemon.traces.reader import read_trace
from boa_daemon.traces.workload import Options
from boa_daemon.traces.writer import write_workload

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
_BITS = (
    b"",
    b"\0",
    b"\xff",
    b'"',
    b",",
    b";",
    b"\t",
    b"|",
    b"\n",
    b"\r",
    b"-1",
    b"1e999",
    b"nan",
    b"{",
    b"[",
    b"]",
)
_TEXTS = (
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"1,250",
    b"12,50",
    b"0",
    b"null",
    b"2026-02-30",
    b"99999999999999999999",
    b"\xd9\xa1\xd9\xa2",
    b"\xc2\xa0",
    b"1'250",
    b"1,00,000",
    b"5k",
    b"(5)",
    b"2026-03-01 12:00 IST",
    b"202603011200",
    b"1772366400000000",
    b"24:00",
    b"sep=;\n",
    b"# ",
    b"PK\x03\x04",
)


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Return bytes with one to four faults such as editors, transfers, spreadsheets and programs make."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(raw)) if raw else 0
        to = min(len(raw), at + chance.randint(1, 40))
        other = chance.choice(_BITS + _TEXTS)
        lines = raw.split(b"\n")
        one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
        swapped = [*lines]
        swapped[one], swapped[two] = swapped[two], swapped[one]
        raw = chance.choice(
            [
                raw[:at] + other + raw[to:],
                raw[:at] + other + raw[at:],
                raw[:at],
                raw[:to] + raw[at:],
                b"\n".join(lines[:one] + lines[one:][1:]),
                b"\n".join([*lines[: one + 1], *lines[one:]]),
                b"\n".join(swapped),
                raw.replace(b"\n", b"\r\n"),
            ]
        )
    return raw


def history(kind: str, path: Path, folder: Path) -> str:
    """Import a history, write it, and return what is not the same after reading it back."""
    found = import_source(kind, path, Options(gpus=1) if "gpus" in HISTORIES[kind].accepts else Options())
    trace, classes = write_workload(found, folder)
    if read_trace(trace) != found.trace:
        return "the trace is another one"
    file = load_problem(classes, require_rates=False) if found.gpu_types or not _has_types(found) else None
    if file is not None:
        sizes = {one.name: one.size_gpu_hours for one in found.classes}
        back = {one.name: one.size_gpu_hours for one in file.problem.classes}
        if back.keys() != sizes.keys() or any(abs(back[name] / sizes[name] - 1.0) > 1e-5 for name in sizes):
            return "the classes are others"
    return ""


def _has_types(found: Any) -> bool:
    """Return whether the classes name GPU types, whose prices a plan needs first."""
    return any(kind != "gpu" for one in found.classes for phase in one.phases for kind in phase.speedups)


def prices(kind: str, path: Path, folder: Path) -> str:
    """Import a price list, write it, and return what is not the same after reading it back."""
    found = PRICE_KINDS[kind].reader(path, PriceFlags(cloud="x"))
    if not found.prices:
        return ""
    out = folder / "prices.csv"
    write_price_list(found.prices, out)
    file, _ = read_price_file(out)
    back = sorted(
        (row.instance_type, row.region or "", row.market or "", row.usd_per_hour or row.spot_usd_per_hour_max)
        for row in file.types
    )
    own = sorted((one.instance_type, one.region, one.market, one.usd_per_hour) for one in found.prices)
    return "" if back == own else "the prices are others"


def task(kind: str, path: Path, folder: Path) -> str:
    """Translate a task, and return a key of it that no finding mentions."""
    del folder
    document = read_document(path)
    found = translate(document, kind, class_name="c")
    said = {one.key.partition(".")[0] for one in found.findings}
    lost = [str(key) for key, value in document.content.items() if value is not None and str(key) not in said]
    lost = [
        key for key in lost if key != "type" and not (key in ("resources", "envs", "env") and found.refused)
    ]
    return f"{lost} in no finding" if lost and not found.refused else ""


def subjects() -> list[tuple[str, Path, Callable[[Path, Path], str]]]:
    """Return (name, example, trial) of every kind with an example that is one file."""
    found: list[tuple[str, Path, Callable[[Path, Path], str]]] = []
    for kind, entry in HISTORIES.items():
        example = DATA / entry.example
        if kind == "pai":
            example = example / "pai_task_table.csv"
        if entry.example and example.is_file():
            found.append((f"history {kind}", example, partial(history, kind)))
    for kind, price in PRICE_KINDS.items():
        found.append((f"prices {kind}", DATA / "prices" / price.example, partial(prices, kind)))
    for kind, one in TASKS.items():
        found.append((f"task {kind}", DATA / "tasks" / one.example, partial(task, kind)))
    return found


def main() -> int:
    """Run the fuzz; return 1 if there was a traceback or a silent change."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return run(options.files, options.seed)


def run(files: int, seed: int) -> int:
    """Try `files` mutated files, the same number of each kind."""
    known, faults, begin = subjects(), 0, time.monotonic()
    each = -(-files // len(known))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for subject, example, trial in known:
            chance, raw = random.Random(f"{seed} {subject}"), example.read_bytes()
            # A table of 300 rows is cut; half of a list in JSON would never be read.
            raw = raw[:6000] if example.suffix == ".csv" else raw
            refused = 0
            for number in range(each):
                path = folder / example.name
                path.write_bytes(mutated(raw, chance))
                try:
                    fault = trial(path, folder)
                except BoaError:
                    refused, fault = refused + 1, ""
                except Exception as error:
                    fault = f"{type(error).__name__}: {error}"
                if fault:
                    faults += 1
                    sys.stdout.write(f"{subject}, file {number}: {fault}\n")
            sys.stdout.write(f"{subject}: {each} files, {refused} refused\n")
    sys.stdout.write(f"{each * len(known)} files, {faults} faults, {time.monotonic() - begin:.0f} s\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
