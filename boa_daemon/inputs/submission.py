"""Read and check job files for submission, and make them independent of the daemon's working folder."""

from __future__ import annotations

import os
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.inputs.code_archive import Progress, pack, why_left_out
from boa_daemon.inputs.document_file import Document, KeyPath, parse_document, read_text
from boa_daemon.inputs.elasticity import elastic_script
from boa_daemon.inputs.job_file import check_job, instant_of
from boa_daemon.inputs.sbatch_file import SbatchNote, document_of, is_sbatch, parse_sbatch
from boa_daemon.units import format_instant


def read_submission(
    path: Path, *, now: float = -inf, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return the checked jobs of a file with one job or a list; folders become absolute paths.

    A batch script of Slurm is a job file too.

    Raises:
        InputError: when the file is not a job file, its workdir is not a folder, or its deadline is past.
    """
    document, _ = read_job_file(path)
    return submission_of(document, path, now=now, progress=progress)


def read_job_file(path: Path) -> tuple[Document, tuple[SbatchNote, ...]]:
    """Return the document of a job file, and what is said of a batch script's lines. It is read once.

    Raises:
        InputError: when it cannot be read.
    """
    text = read_text(path)
    if not is_sbatch(path, text):
        return parse_document(text, path), ()
    script = parse_sbatch(text, path)
    return document_of(script, path), script.notes


def submission_of(
    document: Document, path: Path, *, now: float = -inf, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return the checked jobs of a document that was read from `path`; see `read_submission`.

    Raises:
        InputError: when it is no job file, its workdir is not a folder, or its deadline is past.
    """
    beside = Path.cwd() if str(path) == "-" else _without_links(path).parent
    found = as_submitted(document, beside=beside, progress=progress)
    for number, content in enumerate(found):
        if instant_of(content.get("deadline", "9999-01-01T00:00:00+00:00")) <= now:
            at: KeyPath = (number, "deadline") if isinstance(document.content, list) else ("deadline",)
            problem = f"the deadline {content['deadline']} is past: it is {format_instant(now)}"
            raise document.error(problem, at=at, hint="Write a later one, or deadline_hours: 12")
    return found


def as_submitted(
    document: Document, *, beside: Path, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return the checked jobs of a document whose folders are relative to `beside`.

    `progress` is told of the packing of their code.

    Raises:
        InputError: when it is not a job file, or its workdir is not a folder.
    """
    items = document.content if isinstance(document.content, list) else [document.content]
    found = []
    for number, item in enumerate(items):
        at = (number,) if isinstance(document.content, list) else ()
        one = document if not at else Document(name=f"{document.name}[{number}]", content=item)
        content = dict(check_job(one))
        if content["code"] is None:
            workdir = _without_links(beside / content["workdir"])
            if not os.path.isdir(workdir):
                raise document.error(f"workdir {content['workdir']!r} is not a folder", at=(*at, "workdir"))
            content["workdir"] = str(workdir)
        else:
            content["code"] = _packed(document, at, content, beside, progress)
            workdir = Path(content["code"]["folder"]) / content["workdir"]
        content["data"] = _data(document, at, content["data"], beside)
        if content["elastic"] is None and elastic_script(content["run"], workdir) is not None:
            content["elastic"] = True
        found.append({key: value for key, value in content.items() if value is not None})
    return found


def _without_links(path: Path) -> Path:
    """Return a path with links resolved; unchanged if the links are circular or the name is invalid."""
    with suppress(RuntimeError, ValueError):
        return path.resolve()
    return path


def _data(
    document: Document, at: KeyPath, said: dict[str, str] | None, beside: Path
) -> dict[str, str] | None:
    """Return sources of data with absolute folders.

    Raises:
        InputError: when a folder does not exist.
    """
    found = {}
    for name, source in (said or {}).items():
        folder = _without_links(beside / source)
        if not source.startswith("s3://") and not os.path.isdir(folder):
            where = (*at, "data", name) if name else (*at, "data")
            raise document.error(f"data {source!r} is not a folder", at=where)
        found[name] = source if source.startswith("s3://") else str(folder)
    return found or None


def _packed(
    document: Document, at: KeyPath, content: dict[str, Any], beside: Path, progress: Progress | None
) -> dict[str, Any]:
    """Return the folder of a job's code and the digest of its current content.

    Raises:
        InputError: when there is no such code, or the working folder is not in it.
    """
    said = content["code"]
    folder = _without_links(beside / said["folder"])
    try:
        found = pack(folder, said["revision"], progress=progress)
    except InputError as error:
        raise document.error(error.problem, at=(*at, "code"), hint=error.hint) from None
    workdir = str(Path(content["workdir"]))
    if workdir not in found.names:
        problem, hint = f"workdir {workdir!r} is not a folder of the code", ""
        if said["revision"] is not None:
            hint = f"The code is that of the revision {said['revision']}; the files here do not count"
        elif os.path.isdir(folder / workdir):
            if rule := why_left_out(folder, workdir):
                problem = f"{problem}: git ignores it ({rule})"
            else:
                hint = "It is empty, or git ignores all that is in it; git keeps no empty folders"
        raise document.error(problem, at=(*at, "workdir"), hint=hint)
    return {"folder": str(folder), "revision": said["revision"], "digest": found.digest}
