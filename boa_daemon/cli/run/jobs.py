"""``boa submit``, ``jobs``, ``explain``, ``logs`` and ``cancel``: the daemon's jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from boa_daemon.cli.common.completion import JobArgument, complete_jobs
from boa_daemon.cli.common.daemon_client import (
    ConfigOption,
    SocketOption,
    a_client,
    age,
    say_as_of,
    say_next,
    usd,
)
from boa_daemon.cli.common.log_lines import LogView, Reader
from boa_daemon.cli.common.output import (
    OutputFormat,
    OutputOption,
    a_table,
    print_json,
    print_text,
    show,
    stdout_console,
)
from boa_daemon.errors import FAILED, PARTLY_DONE, BoaError, InputError
from boa_daemon.tick.facts.reasons import text_of
from boa_daemon.units import SECONDS_PER_HOUR, counted, format_hours

if TYPE_CHECKING:
    from boa_daemon.api.answers import CancelAnswer
    from boa_daemon.inputs.sbatch_file import SbatchNote

LOG_SECONDS, WATCH_SECONDS = 1.0, 2.0


def submit(
    *,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Job files; - is standard input.")],
    config: ConfigOption = None,
    socket: SocketOption = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="KIND", help="The files are tasks of another tool: sky (SkyPilot) or dstack."
        ),
    ] = None,
    class_name: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="With --from: the class of the jobs.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the files against the settings; needs no daemon.")
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Submit jobs to the daemon: all of the files, or none."""
    from boa_daemon.cli.common.byte_progress import byte_progress  # noqa: PLC0415
    from boa_daemon.engines.generation_units import RIGID  # noqa: PLC0415 - slow to import, and listing needs none of it
    from boa_daemon.inputs.groups import size_of  # noqa: PLC0415
    from boa_daemon.inputs.submission import read_job_file, submission_of  # noqa: PLC0415

    if source is None and class_name is not None:
        raise InputError("--class goes with --from", hint="A job file states its class itself")
    contents: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    scripts: dict[str, Sequence[SbatchNote]] = {}
    with byte_progress("packing the code") as told:
        if source is None:
            for path in files:
                job_file, notes = read_job_file(path)
                contents += submission_of(job_file, path, now=time.time(), progress=told)
                if notes:
                    scripts[job_file.name] = notes
        else:
            from boa_daemon.cli.run.other_jobs import read_other_tasks  # noqa: PLC0415 - few ask for it

            contents, findings = read_other_tasks(files, source, class_name=class_name, progress=told)
    if check:
        rigid = [content["name"] for content in contents if not content.get("elastic")]
        document: dict[str, Any] = {
            "jobs": [content["name"] for content in contents for _ in range(size_of(content))],
            "groups": [],
            "valid": True,
            "rigid": rigid,
            "handed_over": _handed_over(contents),
            **_by_settings(contents, config),
        }
    else:
        with a_client(config, socket) as client:
            document = dict(client.submit_checked(contents))
    if source is not None:
        document["translated"] = findings
    if scripts:
        document["sbatch"] = {path: [asdict(note) for note in notes] for path, notes in scripts.items()}
    if output is OutputFormat.json:
        print_json(document)
        return
    names = document["jobs"]
    for script, said_of_lines in scripts.items():
        for note in said_of_lines:
            place = f"{script}:{note.line}" if note.line else "environment"
            said = f"{place}: {note.option} {note.fate}: {note.said}"
            stdout_console().print(said, markup=False, highlight=False)
    stdout_console().print(
        f"{counted(len(names), 'job')} {'valid' if check else 'submitted'}: "
        f"{', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"
    )
    for name, answer in document.get("dates", {}).items():
        stdout_console().print(f"{name}: {answer['text']}", markup=False, highlight=False)
    for name, said in document.get("not_planned_on", {}).items():
        stdout_console().print(f"{name}: {' '.join(said)}", markup=False, highlight=False)
    for name, why in document.get("not_enforced", {}).items():
        stdout_console().print(f"{name}: {why}", markup=False, highlight=False)
    for name, program in document.get("handed_over", {}).items():
        said = f"{name}: `{program}` hands its work to another machine or service: no stop reaches it there,"
        stdout_console().print(f"{said} and it goes on when the job ends", markup=False, highlight=False)
    for name in document["groups"]:
        stdout_console().print(f"group {name}: `boa jobs --group {name}`, `boa cancel {name}`", markup=False)
    ids = names if len(names) == len(contents) else [content["name"] for content in contents]
    narrow = [ids[at] for at, content in enumerate(contents) if not content.get("elastic")]
    if narrow:
        listed = f"{', '.join(narrow[:5])}{', ...' if len(narrow) > 5 else ''}"
        stdout_console().print(f"{listed}: {RIGID}", markup=False, highlight=False)
    if not check:
        say_next(f"boa explain {names[0]}", f"boa logs -f {names[0]}", "boa status")


def _handed_over(contents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return by job the program of its command that hands the work to another machine or service."""
    from boa_daemon.inputs.handed_over import handed_over  # noqa: PLC0415

    found = {content["name"]: handed_over(str(content.get("run", ""))) for content in contents}
    return {name: program for name, program in found.items() if program}


def _by_settings(contents: Sequence[Mapping[str, Any]], config: Path | None) -> dict[str, Any]:
    """Return by job the machines that lack what it asks for, and its limits that are not enforced.

    Both are empty where there is no settings file.

    Raises:
        InputError: when no machine is large enough for a job.
    """
    # These imports are slow, and only --check needs them.
    from boa_daemon.daemon.loop.assembly import cloud_class  # noqa: PLC0415
    from boa_daemon.daemon.planner.planner import Planner  # noqa: PLC0415
    from boa_daemon.daemon.settings.setting_layers import load_settings  # noqa: PLC0415
    from boa_daemon.inputs.document_file import Document  # noqa: PLC0415
    from boa_daemon.inputs.job_file import check_job  # noqa: PLC0415

    loaded = load_settings(config)
    if not loaded.files:
        return {"not_planned_on": {}, "not_enforced": {}}
    planner = Planner(loaded.settings, cloud=cloud_class(loaded.settings))
    # Fill in the defaults, as the daemon does.
    whole = [check_job(Document(name="job", content=content, language="json")) for content in contents]
    found = [(content["name"], planner.lacks(content), planner.unenforced(content)) for content in whole]
    return {
        "not_planned_on": {name: lacks for name, lacks, _ in found if lacks},
        "not_enforced": {name: why for name, _, why in found if why},
    }


def jobs(
    *,
    user: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    group: Annotated[str | None, typer.Option(help="Only jobs of this group, and their cost.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also jobs that have ended.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=20_000, help="Show at most this many, the newest.")] = 50,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only ids, one per line.")] = False,
    team: Annotated[str | None, typer.Option(help="Only jobs that this team pays for.")] = None,
    before: Annotated[
        int | None, typer.Option(min=1, help="Next page: the number that the last page printed.")
    ] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """List jobs, newest first."""
    with a_client(config, socket) as client:

        def ask() -> dict[str, Any]:
            return {
                **client.jobs(
                    user=user, group=group, team=team, before=before, ended=everything, limit=limit
                ),
                **({} if group is None else {"group": client.group(group)}),
            }

        document = ask()
        if watch and not quiet and output is OutputFormat.table:
            _watch(ask, document)
    if quiet:
        print_text("".join(f"{row['id']}\n" for row in document["jobs"]))
        return
    show(
        output,
        document,
        rows=lambda: [
            {
                **row,
                "nodes": " ".join(row["nodes"]),
                "last_lines": " | ".join(row["last_lines"]),
                "matrix": " ".join(f"{name}={value}" for name, value in row["matrix"].items()),
            }
            for row in document["jobs"]
        ],
        table=lambda: _print_jobs(document),
    )


def _print_jobs(document: Mapping[str, Any]) -> None:
    rows = document["jobs"]
    if "group" in document:
        _print_group(document["group"])
    if not rows:
        stdout_console().print("No jobs.")
        say_next("boa submit FILE", "boa jobs --all")
        return
    stdout_console().print(_jobs_table(document))
    for row in rows:
        has_lost = bool(row["failures"] or row["lost_steps"])
        if row["status"] == "failed" or (has_lost and row["status"] != "finished"):
            _print_end(row)
    if document["next"] is not None:
        stdout_console().print(f"There are more: --before {document['next']} shows the next page.")
    say_as_of(dict(document))
    say_next(f"boa explain {rows[0]['id']}", "boa status")


def _watch(ask: Callable[[], dict[str, Any]], document: dict[str, Any]) -> NoReturn:
    """Refresh the list of jobs until Ctrl-C, with as many rows as fit on the terminal."""
    from rich.live import Live  # noqa: PLC0415 - one flag needs it

    console = stdout_console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            room = max(console.height - 4, 1)
            live.update(_jobs_table({**document, "jobs": document["jobs"][:room]}), refresh=True)
            time.sleep(WATCH_SECONDS)
            document = ask()


def _jobs_table(document: Mapping[str, Any]) -> Any:
    rows = document["jobs"]
    waits = ("waits for",) if any(row["waits_for"] for row in rows) else ()
    table = a_table(
        "Jobs", "id", "user", "class", "status", "GPUs", "step", "age", "cost", *waits,
        right=("GPUs", "cost"), optional=("step", "class", "age"), prose=waits,
    )  # fmt: skip
    now = float(document["as_of"])
    for row in rows:
        table.add_row(
            row["id"],
            row["user"],
            row["class"],
            f"{row['status']} (stalled)" if row["stalled_since"] else row["status"],
            str(row["gpus"] or ""),
            str(row["step"] if row["step"] is not None else ""),
            age(row["arrived_at"], now),
            usd(row["usd"]),
            *(_wait(row, now) for _ in waits),
        )
    return table


def _wait(row: Mapping[str, Any], now: float) -> str:
    """Return what a job waits for in the words of the page, its place in the queue, and for how long."""
    code, place, starts_at = row["waits_for"], row.get("place_in_queue"), row.get("starts_at")
    if not code:
        return ""
    said = text_of(code) + (f", number {place:,}" if place else "")
    if starts_at is None:
        return said
    return f"{said}, about {format_hours(max(starts_at - now, 0.0) / SECONDS_PER_HOUR)} more"


def _print_group(group: Mapping[str, Any]) -> None:
    """Print a group's number of jobs by status, and their total cost."""
    counts = ", ".join(f"{number} {status}" for status, number in group["counts"].items())
    most = "" if group["max_usd"] is None else f" of {usd(group['max_usd'])}"
    stdout_console().print(f"{group['group']}: {counts}; {usd(group['usd'])}{most}", highlight=False)


def _print_end(row: Mapping[str, Any]) -> None:
    """Print how a job's last generation ended: cause, exit code and last lines of its log."""
    number = row["exit_code"]
    code = "" if number is None else f"signal {-number}" if number < 0 else f"exit code {number}"
    code = "" if not code or code in str(row["cause"]) else f" ({code})"
    stdout_console().print(f"{row['id']}: {row['cause']}{code}", markup=False, highlight=False)
    for line in row["last_lines"][-3:]:
        stdout_console().print(f"    {line}", markup=False, highlight=False)


def explain(
    *,
    job: JobArgument,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Explain why a job has its GPUs and nodes, or why it waits."""
    with a_client(config, socket) as client:
        document = client.explain(job)
    if output is OutputFormat.json:
        print_json(document)
        return
    stdout_console().print(document["text"], markup=False)
    say_as_of(document)
    say_next(f"boa logs {job}", "boa decisions --acting")


def logs(
    *,
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing until the job ends.")] = False,
    generation: Annotated[
        int | None, typer.Option(min=1, help="Log of this start of the job. Default: the newest.")
    ] = None,
    node: Annotated[
        int | None,
        typer.Option(min=0, help="Log of this node of the job, from 0. Default: the node that reports."),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Only lines of this torchrun rank.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Logs of all nodes, each line with its node.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Also on a terminal, print control characters as they are.")
    ] = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Print the log of a job; a terminal gets it without control characters, a pipe as it is."""
    if (node is not None) + (rank is not None) + everything > 1:
        raise InputError("--node, --rank and --all exclude each other", hint="Give one of them")
    texts: list[str] = []
    is_json = output is OutputFormat.json
    shown = LogView(rank=rank, marks_nodes=everything)
    readers: dict[int | None, Reader] = {}
    with a_client(config, socket) as client:

        def read(number: int | None) -> Mapping[str, Any]:
            reader = readers.setdefault(number, Reader())
            chunk = client.logs(job, since=reader.offset, generation=generation, node=number)
            text = shown.take(reader, chunk)
            if is_json:
                texts.append(text)
            else:
                print_text(text, is_raw=raw)
            return chunk

        while True:
            chunk = read(0 if everything or rank is not None else node)
            if everything or rank is not None:
                for number in range(1, int(chunk["nodes"])):
                    read(number)
            if any(reader.is_new for reader in readers.values()):
                continue
            if not follow or chunk["status"] not in ("queued", "running"):
                break
            time.sleep(LOG_SECONDS)
    last = "".join(shown.rest(reader) for reader in readers.values())
    if is_json:
        texts.append(last)
    else:
        print_text(last, is_raw=raw)
    if rank is not None and not shown.has_shown:
        raise InputError(
            f"the logs of {job} have no line of rank {rank}",
            hint="torchrun marks lines only if it starts several ranks; --node N and --all show whole logs",
        )
    if is_json:
        offset = max(reader.offset for reader in readers.values())
        print_json({"job": job, "text": "".join(texts), "next_offset": offset, "status": chunk["status"]})


def cancel(
    *,
    names: Annotated[
        list[str],
        typer.Argument(metavar="JOB...", help="Job or group ids.", autocompletion=complete_jobs),
    ],
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Cancel jobs; a running job may write a checkpoint first."""
    answers: list[CancelAnswer] = []
    faults: list[str] = []
    with a_client(config, socket) as client:
        for name in names:
            try:
                answers.append(client.cancel(name))
            except BoaError as error:
                if len(names) == 1:
                    raise
                faults.append(f"{name}: {error}")
    if output is OutputFormat.json:
        print_json({"jobs": answers, "faults": faults})
    else:
        console = stdout_console()
        for answer in answers:
            already = "" if answer["changed"] else " already"
            jobs = f" ({counted(answer['jobs'], 'job')})" if "jobs" in answer else ""
            console.print(f"{answer['job']}: {answer['status']}{already}{jobs}")
        for fault in faults:
            console.print(fault, markup=False)
    if faults:
        raise typer.Exit(PARTLY_DONE if answers else FAILED)
