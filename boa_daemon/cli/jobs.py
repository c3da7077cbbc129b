"""``boa submit``, ``jobs``, ``explain``, ``logs``, ``cancel``: the jobs of the daemon."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from boa_daemon.cli.elasticity import elastic_script
from boa_daemon.cli.log_lines import Reader, Shown
from boa_daemon.cli.output import (
    JsonOption,
    OutputFormat,
    OutputOption,
    a_table,
    chosen_format,
    print_json,
    print_text,
    show,
    stdout_console,
)
from boa_daemon.cli.talking import ConfigOption, SocketOption, a_client, age, say_as_of, say_next, usd
from boa_daemon.engines.units import RIGID
from boa_daemon.errors import FAILED, PARTLY_DONE, BoaError, InputError
from boa_daemon.inputs.job_file import check_job
from boa_daemon.inputs.yaml_file import Document, read_document
from boa_daemon.units import counted

LOG_SECONDS = 1.0


def submit(
    *,
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Job files; - is standard input.")],
    config: ConfigOption = None,
    socket: SocketOption = None,
    check: Annotated[bool, typer.Option("--check", help="Only check the files; ask no daemon.")] = False,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Give jobs to the daemon, all or none."""
    contents = [content for path in files for content in read_jobs(path)]
    form = chosen_format(output, as_json)
    if check:
        rigid = [content["name"] for content in contents if not content.get("elastic")]
        document: dict[str, Any] = {
            "jobs": [content["name"] for content in contents],
            "valid": True,
            "rigid": rigid,
        }
    else:
        with a_client(config, socket) as client:
            document = client.post("/jobs", {"jobs": contents})
    if form is OutputFormat.json:
        print_json(document)
        return
    names = document["jobs"]
    stdout_console().print(
        f"{counted(len(names), 'job')} {'valid' if check else 'submitted'}: "
        f"{', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"
    )
    narrow = [names[at] for at, content in enumerate(contents) if not content.get("elastic")]
    if narrow:
        listed = f"{', '.join(narrow[:5])}{', ...' if len(narrow) > 5 else ''}"
        stdout_console().print(f"{listed}: {RIGID}", markup=False, highlight=False)
    if not check:
        say_next(f"boa explain {names[0]}", f"boa logs -f {names[0]}", "boa status")


def read_jobs(path: Path) -> list[dict[str, Any]]:
    """Return the checked jobs of a file, which holds one or a list; folders are made absolute.

    Raises:
        InputError: when the file is not a job file, or its workdir is not a folder.
    """
    document = read_document(path)
    items = document.content if isinstance(document.content, list) else [document.content]
    found = []
    for number, item in enumerate(items):
        at = (number,) if isinstance(document.content, list) else ()
        one = document if not at else Document(name=f"{document.name}[{number}]", content=item)
        content = dict(check_job(one))
        beside = Path.cwd() if str(path) == "-" else path.resolve().parent
        workdir = (beside / content["workdir"]).resolve()
        if not workdir.is_dir():
            raise document.error(f"workdir {content['workdir']!r} is not a folder", at=(*at, "workdir"))
        content["workdir"] = str(workdir)
        if content["elastic"] is None and elastic_script(content["run"], workdir) is not None:
            content["elastic"] = True
        found.append({key: value for key, value in content.items() if value is not None})
    return found


def jobs(
    *,
    user: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also jobs that are over.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=20_000, help="At most this many, the newest.")] = 50,
    team: Annotated[str | None, typer.Option(help="Only jobs that this team pays for.")] = None,
    before: Annotated[
        int | None, typer.Option(min=1, help="The page that follows: what the last one gave as next.")
    ] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """List jobs, the newest first."""
    with a_client(config, socket) as client:
        document = client.get("/jobs", user=user, ended=everything, limit=limit, team=team, before=before)
    show(
        chosen_format(output, as_json),
        document,
        rows=lambda: [
            {**row, "nodes": " ".join(row["nodes"]), "last_lines": " | ".join(row["last_lines"])}
            for row in document["jobs"]
        ],
        table=lambda: _print_jobs(document),
    )


def _print_jobs(document: Mapping[str, Any]) -> None:
    """Print jobs for people."""
    rows = document["jobs"]
    if not rows:
        stdout_console().print("No jobs.")
        say_next("boa submit FILE", "boa jobs --all")
        return
    table = a_table(
        "Jobs", "id", "user", "class", "status", "GPUs", "step", "age", "USD", right=("GPUs", "USD")
    )
    for row in rows:
        why = "stalled" if row["stalled_since"] else row["waits_for"]
        status = row["status"] if not why else f"{row['status']} ({why})"
        table.add_row(
            row["id"],
            row["user"],
            row["class"],
            status,
            str(row["gpus"] or ""),
            str(row["step"] if row["step"] is not None else ""),
            age(row["arrived_at"], float(document["as_of"])),
            usd(row["usd"]),
        )
    stdout_console().print(table)
    for row in rows:
        if row["status"] == "failed" or (row["failures"] and row["status"] != "finished"):
            _print_end(row)
    if document["next"] is not None:
        stdout_console().print(f"There are more: --before {document['next']} shows the next page.")
    say_as_of(dict(document))
    say_next(f"boa explain {rows[0]['id']}", "boa status")


def _quoted(name: str) -> str:
    """Return an id as part of a path; what is none is for the daemon to refuse."""
    return quote(name or " ", safe="").replace("%2F", "%252F")


def _print_end(row: Mapping[str, Any]) -> None:
    """Print how a job's last generation ended: the cause, the exit code, and what it printed last."""
    code = "" if row["exit_code"] is None else f"exit code {row['exit_code']}"
    code = "" if not code or code in str(row["cause"]) else f" ({code})"
    stdout_console().print(f"{row['id']}: {row['cause']}{code}", markup=False, highlight=False)
    for line in row["last_lines"][-3:]:
        stdout_console().print(f"    {line}", markup=False, highlight=False)


def explain(
    *,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job.")],
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Say why a job has its width and its nodes, or why it waits."""
    with a_client(config, socket) as client:
        document = client.get(f"/jobs/{_quoted(job)}/explain")
    if chosen_format(output, as_json) is OutputFormat.json:
        print_json(document)
        return
    stdout_console().print(document["text"], markup=False)
    say_as_of(document)
    say_next(f"boa logs {job}", "boa decisions --acting")


def logs(
    *,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The id of a job.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    generation: Annotated[int | None, typer.Option(min=1, help="Of this start; default: the newest.")] = None,
    node: Annotated[
        int | None,
        typer.Option(min=0, help="Of this node of the job, from 0 on; default: the one that reports."),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Only the lines of this rank (torchrun).")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Of all nodes, each line with its node.")] = False,
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Print what a job printed."""
    if (node is not None) + (rank is not None) + everything > 1:
        raise InputError("--node, --rank and --all exclude each other", hint="Give one of them")
    texts: list[str] = []
    is_json = chosen_format(output, as_json) is OutputFormat.json
    shown = Shown(rank=rank, marks_nodes=everything)
    readers: dict[int | None, Reader] = {}
    with a_client(config, socket) as client:

        def read(number: int | None) -> Mapping[str, Any]:
            reader = readers.setdefault(number, Reader())
            path, since = f"/jobs/{_quoted(job)}/logs", reader.offset
            chunk: Mapping[str, Any] = client.get(path, since=since, generation=generation, node=number)
            text = shown.take(reader, chunk)
            if is_json:
                texts.append(text)
            else:
                print_text(text)
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
        print_text(last)
    if rank is not None and not shown.has_shown:
        raise InputError(
            f"no line of rank {rank} is in the logs of {job}",
            hint="Lines carry their rank where torchrun started several; --node N and --all show whole logs",
        )
    if is_json:
        offset = max(reader.offset for reader in readers.values())
        print_json({"job": job, "text": "".join(texts), "next_offset": offset, "status": chunk["status"]})


def cancel(
    *,
    names: Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.")],
    config: ConfigOption = None,
    socket: SocketOption = None,
    output: OutputOption = OutputFormat.table,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs; one that runs may write its checkpoint first."""
    answers: list[dict[str, Any]] = []
    faults: list[str] = []
    with a_client(config, socket) as client:
        for name in names:
            try:
                answers.append(client.post(f"/jobs/{_quoted(name)}/cancel"))
            except BoaError as error:
                if len(names) == 1:
                    raise
                faults.append(f"{name}: {error}")
    if chosen_format(output, as_json) is OutputFormat.json:
        print_json({"jobs": answers, "faults": faults})
    else:
        console = stdout_console()
        for answer in answers:
            already = "" if answer["changed"] else " already"
            console.print(f"{answer['job']}: {answer['status']}{already}")
        for fault in faults:
            console.print(fault, markup=False)
    if faults:
        raise typer.Exit(PARTLY_DONE if answers else FAILED)
