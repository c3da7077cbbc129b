"""Editors know the files that people write: the first line names a schema, which is there and right."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.cli.common.schemas import SchemaName, schema_of
from boa_daemon.inputs.document_file import read_document

EXAMPLES = Path(__file__).parents[4] / "examples"
HEADER = re.compile(r"\A(?:# yaml-language-server: \$schema=|#:schema )(\S+)\n")
WRITTEN = sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".yaml", ".toml"))


def as_json(value: Any) -> Any:
    """Return a document as JSON has it: whole numbers as keys, and TOML's dates, are text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list) else value


def check(path: Path) -> None:
    """Validate a file by the schema that its first line names.

    Raises:
        ValidationError: when an editor would underline something.
    """
    text = path.read_text(encoding="utf-8")
    header = HEADER.match(text)
    assert header is not None, path.name
    jsonschema.validate(
        as_json(read_document(path).content), json.loads((path.parent / header[1]).read_text())
    )


@pytest.mark.parametrize("name", WRITTEN)
def test_an_example_names_its_schema_and_is_right_by_it(name: str) -> None:
    """The path is relative to the file, so it works in a clone without a network."""
    check(EXAMPLES / name)


def test_the_schemas_beside_the_examples_are_those_of_the_program() -> None:
    """After a change: `boa schema --folder DIR`, and copy those that are in examples/schemas."""
    for path in sorted((EXAMPLES / "schemas").iterdir()):
        kind = SchemaName(path.name.removesuffix(".schema.json"))
        assert json.loads(path.read_text(encoding="utf-8")) == json.loads(json.dumps(schema_of(kind)))


@pytest.mark.parametrize("where", ["simulated", "local", "aws"])
@pytest.mark.parametrize("market", ["on-demand", "spot", "spot-then-on-demand"])
def test_what_init_writes_names_its_schema_and_is_right_by_it(
    where: str, market: str, tmp_path: Path
) -> None:
    """A mistake in one of the files is seen while it is typed."""
    flags = {"gpus": "g5.xlarge,g6", "usd-per-month": "500", "whose": "everybodys", "where": where}
    words = [word for name, value in (flags | {"market": market}).items() for word in (f"--{name}", value)]
    done = CliRunner().invoke(app, ["init", "--folder", str(tmp_path), *words])
    assert done.exit_code == 0, done.output
    for name in ("boa.toml", "classes.yaml", "hello.yaml"):
        check(tmp_path / name)
    (tmp_path / "hello.yaml").write_text((tmp_path / "hello.yaml").read_text() + "max_gpu: 2\n")
    with pytest.raises(jsonschema.ValidationError, match="max_gpu"):
        check(tmp_path / "hello.yaml")


def test_all_schemas_are_written_to_a_folder(tmp_path: Path) -> None:
    """These are files of a release, for those who have an editor and no BOA."""
    assert CliRunner().invoke(app, ["schema", "--folder", str(tmp_path / "schemas")]).exit_code == 0
    written = {path.name for path in (tmp_path / "schemas").iterdir()}
    assert written == {f"{kind}.schema.json" for kind in SchemaName}
