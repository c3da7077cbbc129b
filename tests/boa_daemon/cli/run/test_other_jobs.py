"""Tasks of other tools become job files; each key is reported, and what cannot be kept is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.cli.run.other_jobs import read_other_tasks
from boa_daemon.errors import InputError
from boa_daemon.inputs.other_tasks import TASKS


@pytest.mark.parametrize(
    ("kind", "class_name", "said"),
    [
        ("dstak", "default", "--from 'dstak' is not one of .*Did you mean 'dstack'"),
        ("sky", None, "a task of sky names no class. Give --class NAME"),
    ],
)
def test_a_task_needs_a_known_kind_and_a_class(kind: str, class_name: str | None, said: str) -> None:
    """A task of another tool says nothing about how it scales."""
    with pytest.raises(InputError, match=said):
        read_other_tasks([], kind, class_name=class_name, progress=None)
    assert "sky" in TASKS


def test_each_file_is_a_job_and_each_key_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, and by file in the answer."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(
            f"name: {name}\nrun: python train.py\nresources: {{accelerators: 'A100:2'}}\n"
        )
    files = [Path("one.yaml"), Path("two.yaml")]
    jobs, findings = read_other_tasks(files, "sky", class_name="bert", progress=None)
    assert [(job["name"], job["class"], job["run"]) for job in jobs] == [
        ("one", "bert", "python train.py"),
        ("two", "bert", "python train.py"),
    ]
    assert {found["file"] for found in findings} == {"one.yaml", "two.yaml"}
    said = capsys.readouterr()
    assert said.out == ""
    assert "one.yaml" in said.err
    assert "two.yaml" in said.err
