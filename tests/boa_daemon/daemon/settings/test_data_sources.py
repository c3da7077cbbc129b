"""A data source that nodes cannot read, or that jobs may not read, is refused at submission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boa_daemon.daemon.settings.config import EngineSettings
from boa_daemon.daemon.settings.data_sources import check_data
from boa_daemon.errors import InputError
from boa_daemon.inputs.submission import read_submission


class Brings:
    """A runner whose object store holds one prefix."""

    def lacks_data(self, source: str) -> str:
        return "" if source == "s3://sets/one" else f"{source} holds no object"


def refused(source: str, *, name: str = "local", runner: Any = None) -> str:
    engine = EngineSettings.model_validate({"name": name, "data": ["s3://sets/*"]})
    try:
        check_data({"data": {"": source}}, engine, runner or Brings())
    except InputError as error:
        return str(error)
    return ""


def test_unreadable_data_sources_are_refused(tmp_path: Path) -> None:
    """Missing folders, folders that nodes cannot see, and empty or forbidden prefixes are refused."""
    assert refused(str(tmp_path)) == refused("s3://sets/one", name="ssm") == ""
    assert "no folder of the daemon" in refused(str(tmp_path / "gone"))
    assert "no folder of the daemon" in refused(".")
    assert "no folder of the daemon" in refused(f"/{'x' * 300}")
    assert "aws s3 sync" in refused(str(tmp_path), name="ssm")
    assert "[engine] data" in refused("s3://setsandmore/one")
    assert "holds no object" in refused("s3://sets/two", name="ssm")
    assert "brings no data" in refused("s3://sets/one", runner=object())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("./gone", "is not a folder"),
        ("s3://B/x", "must be s3://BUCKET/PREFIX or a folder"),
        ("gs://b/x", "must be s3://BUCKET/PREFIX or a folder"),
        ("{../x: s3://bucket/x}", "no name of a folder"),
        ("[1]", "data"),
    ],
)
def test_data_sources_in_a_job_file_are_resolved_or_refused(tmp_path: Path, data: str, said: str) -> None:
    """A folder is resolved relative to the job file; an invalid source is refused with an error."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "file").touch()
    text = "name: a\nclass: c\nrun: x\n"
    file = tmp_path / "job.yaml"
    file.write_text(f"{text}data: {{one: set, two: 's3://bucket/x'}}\n")
    assert read_submission(file)[0]["data"] == {"one": str(tmp_path / "set"), "two": "s3://bucket/x"}
    file.write_text(f"{text}data: {data}\n")
    with pytest.raises(InputError, match=said):
        read_submission(file)
