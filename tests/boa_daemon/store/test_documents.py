"""`store/documents.py`: texts by kind and key, of which only changes are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from job_records import a_queue
from sqlalchemy import event

from boa_daemon.store.documents import Documents


def test_documents_of_one_kind_do_not_touch_those_of_another(tmp_path: Path) -> None:
    """A key that both have is deleted for the one that no longer has it."""
    with a_queue(tmp_path) as queue:
        ssm, ray = Documents(queue.database, "ssm"), Documents(queue.database, "ray")
        ssm.write({"a": "1", "b": "2"})
        ray.write({"a": "3"})
        ssm.write({"b": "2"})
        assert Documents(queue.database, "ssm").read() == {"b": "2"}
        assert Documents(queue.database, "ray").read() == {"a": "3"}


def test_what_did_not_change_is_not_written(tmp_path: Path) -> None:
    """No statement at all for equal documents, one for each that differs, also after they were read anew."""
    with a_queue(tmp_path) as queue:
        Documents(queue.database, "ssm").write({"a": "1", "b": "2"})
        documents = Documents(queue.database, "ssm")
        documents.read()
        written: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            written.append(statement.split(maxsplit=1)[0])

        event.listen(queue.database.engine, "before_cursor_execute", note)
        documents.write({"a": "1", "b": "2"})
        assert not {"INSERT", "UPDATE", "DELETE"} & set(written)
        documents.write({"a": "1", "b": "3"})
        assert written.count("INSERT") == 1
