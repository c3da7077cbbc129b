"""``boa demo --gate``: run real DDP jobs on shared links with and without the gate, and compare.

Hosts are network namespaces with cards of 200 Mbit/s. Jobs are PyTorch DDP over gloo: computing is a sleep,
and the gradients are real bytes. Four rounds run the same jobs: without the gate, twice with it, and again
without it, so that other load on the machine affects both alike. The gate has the daemon's default policy.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from boa_daemon.cli.common.output import OutputFormat, a_table, show, stdout_console
from boa_daemon.errors import BoaError
from boa_daemon.gate.benchmark_gate import DEFAULT, open_benchmark_gate
from boa_daemon.gate.virtual_hosts import (
    NICENESS,
    VirtualHosts,
    WorkerGroup,
    run_jobs,
    start_worker_groups,
    why_not,
)
from policies.links.contention import Link

MEGABITS = 200.0
LINK = Link(latency_seconds=1e-3, seconds_per_byte=8.0 / (MEGABITS * 1e6), contention_seconds_per_byte=0.0)
BUCKET_BYTES = 750_000.0
JOBS = (
    # name, message bytes, forward seconds, backward seconds, iterations, arrival
    ("vgg16", 4_506_000, 0.0144, 0.0216, 24, 0.0),
    ("lstm", 2_155_000, 0.0128, 0.0188, 18, 0.1),
    ("resnet50", 849_000, 0.0100, 0.0148, 16, 0.3),
    ("inception3", 882_000, 0.0140, 0.0208, 12, 0.6),
)
"""The four models of arXiv 2002.10105; bytes and seconds are scaled down by the same factor."""
SEATS: list[tuple[int, ...]] = [(0, 1)] * len(JOBS)
ROUNDS = (False, True, True, False)
"""For each round, whether the gate is used."""
LOOKS_PER_SECOND = 8.0


def gate_demo(*, output: OutputFormat) -> None:
    """Run the jobs with and without the gate, show progress, and print what the gate saved.

    Raises:
        BoaError: where hosts cannot be made, which needs Linux, root, iproute2 and PyTorch.
    """
    reason = why_not()
    if reason:
        raise BoaError(f"boa demo --gate {reason}")
    quiet = output is not OutputFormat.table
    if not quiet:
        stdout_console().print(
            f"{len(JOBS)} training jobs, each on two hosts that they share, cards of {MEGABITS:g} Mbit/s. "
            "Without the gate all jobs send at once; with it the job with the least work left sends first."
        )
    found: dict[bool, list[list[float]]] = {False: [], True: []}
    # On SIGTERM exit normally, so that the hosts are removed.
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
        with VirtualHosts(2, megabits=MEGABITS) as hosts:
            crews = start_worker_groups(hosts, SEATS)
            try:
                for number, is_gated in enumerate(ROUNDS, 1):
                    found[is_gated].append(_one_round(crews, number, is_gated=is_gated, quiet=quiet))
            finally:
                for crew in crews:
                    crew.stop()
    finally:
        signal.signal(signal.SIGTERM, before)
    document = document_of(found[False], found[True])
    show(output, document, rows=lambda: document["jobs"], table=lambda: _print(document))


def document_of(without: list[list[float]], gated: list[list[float]]) -> dict[str, Any]:
    """Return each job's time with and without the gate, the means, and the fraction that the gate saved."""
    jobs = [
        {
            "job": name,
            "jct_seconds_without": fmean(times[at] for times in without),
            "jct_seconds_with_gate": fmean(times[at] for times in gated),
        }
        for at, (name, *_) in enumerate(JOBS)
    ]
    before, after = (fmean(fmean(times) for times in rounds) for rounds in (without, gated))
    return {
        "jobs": jobs,
        "mean_jct_seconds_without": before,
        "mean_jct_seconds_with_gate": after,
        "saved_fraction": 1.0 - after / before,
        "rounds": len(without) + len(gated),
    }


def _one_round(crews: list[WorkerGroup], number: int, *, is_gated: bool, quiet: bool) -> list[float]:
    """Run all jobs once, and return how long each took."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name, *_ in JOBS]
        orders: list[dict[str, Any]] = [
            {
                "job": name,
                "message_bytes": message,
                "forward_seconds": forward,
                "backward_seconds": backward,
                "iterations": iterations,
                "arrived_at_seconds": arrival,
                "progress": str(file),
            }
            for file, (name, message, forward, backward, iterations, arrival) in zip(files, JOBS, strict=True)
        ]

        def run() -> list[dict[str, Any]]:
            if not is_gated:
                return run_jobs(crews, orders)
            with open_benchmark_gate(DEFAULT, LINK, orders, bucket_bytes=BUCKET_BYTES) as addresses:
                gated = [{**order, "gate": at} for order, at in zip(orders, addresses, strict=True)]
                return run_jobs(crews, gated)

        title = f"round {number} of {len(ROUNDS)}: {'with the gate' if is_gated else 'all at once'}"
        answers = run() if quiet else _watched(run, files, title)
    return [float(answer["jct_seconds"]) for answer in answers]


def _watched(run: Callable[[], list[dict[str, Any]]], files: list[Path], title: str) -> list[dict[str, Any]]:
    """Run the jobs in a thread, and show the progress of each."""
    answers: list[list[dict[str, Any]]] = []
    faults: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(run())
        except BaseException as fault:  # Raised again below, in the main thread.
            faults.append(fault)

    thread = threading.Thread(target=work, name="boa-demo-round")
    console = stdout_console()
    with Live(console=console, refresh_per_second=LOOKS_PER_SECOND) as live:
        thread.start()
        while thread.is_alive():
            thread.join(1.0 / LOOKS_PER_SECOND)
            live.update(_bars(files, title))
    if faults:
        raise faults[0]
    return answers[0]


def _bars(files: list[Path], title: str) -> Group:
    table = Table.grid(padding=(0, 2))
    for file, (name, _, _, _, iterations, _) in zip(files, JOBS, strict=True):
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        done = int(text or 0)
        table.add_row(name, ProgressBar(total=iterations, completed=done, width=40), f"{done}/{iterations}")
    return Group(Text(title, style="bold"), table)


def _print(document: dict[str, Any]) -> None:
    columns = ("all at once", "with the gate")
    table = a_table("Seconds from arrival to end", "job", *columns, right=columns)
    for row in document["jobs"]:
        table.add_row(row["job"], f"{row['jct_seconds_without']:.2f}", f"{row['jct_seconds_with_gate']:.2f}")
    table.add_row(
        "mean",
        f"{document['mean_jct_seconds_without']:.2f}",
        f"{document['mean_jct_seconds_with_gate']:.2f}",
    )
    stdout_console().print(table)
    saved = document["saved_fraction"]
    when = "sooner" if saved >= 0 else "later"
    stdout_console().print(
        f"With the gate jobs ended {abs(saved):.0%} {when} on average: short jobs do not wait for long ones, "
        "and the last job ends no sooner. This was two rounds each; docs/explanation/gate.md has 20."
    )
