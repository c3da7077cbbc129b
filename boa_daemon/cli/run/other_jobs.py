"""Tasks of other tools for ``boa submit --from``: translated, reported by line, and checked as job files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from boa_daemon.cli.common.output import stderr_console
from boa_daemon.errors import InputError, not_one_of
from boa_daemon.inputs.code_archive import Progress
from boa_daemon.inputs.document_file import read_document
from boa_daemon.inputs.other_tasks import TASKS, refuse, report, translate
from boa_daemon.inputs.submission import as_submitted


def read_other_tasks(
    files: Sequence[Path], kind: str, *, class_name: str | None, progress: Progress | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the jobs of some tasks, and what became of each key; every line of the report goes to stderr.

    Raises:
        InputError: when the kind is unknown, no class is given, or a task has a key that is refused.
    """
    if kind not in TASKS:
        raise InputError(f"--from {not_one_of(kind, TASKS)}")
    if class_name is None:
        hint = "Give --class NAME: the class says how the job scales, and on which GPUs"
        raise InputError(f"a task of {kind} names no class", hint=hint)
    contents: list[dict[str, Any]] = []
    findings: list[dict[str, Any]] = []
    for path in files:
        document = read_document(path)
        found = translate(document, kind, class_name=class_name)
        for line in report(found.findings, document.name):
            stderr_console().print(line, markup=False, highlight=False, soft_wrap=True)
        if found.refused:
            raise refuse(found, document.name)
        beside = Path.cwd() if str(path) == "-" else path.resolve().parent
        job = replace(document, content=found.content, text="")
        contents += as_submitted(job, beside=beside, progress=progress)
        findings += [{"file": document.name, **one.to_document()} for one in found.findings]
    return contents, findings
