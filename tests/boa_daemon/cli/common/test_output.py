"""Tables for people: what somebody else has chosen, such as the key of a tag, is printed as it is."""

from __future__ import annotations

import pytest

from boa_daemon.cli.common.output import NEAREST, a_table, stderr_console, stdout_console


@pytest.mark.parametrize(
    "key", ["tag:CostCentre", "tag:[/x]", "tag:[red]k", "tag:a:b=c", "tag:grüße", "tag:\\"]
)
def test_title_and_columns_of_a_table_are_plain_text(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither brackets nor `:a:` mean anything: the one was taken for a style, the other for an emoji."""
    table = a_table(key, key, "USD", right=("USD",))
    table.add_row("a long enough cell, so that the title is in one line", "1.00")
    stdout_console().print(table)
    title, columns, *_ = capsys.readouterr().out.splitlines()
    assert title.rstrip() == key
    assert columns.split() == [key, "USD"]


def test_notes_have_no_emoji_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """An ARN such as `arn:aws:a:b` has words between colons."""
    stderr_console().print("arn:aws:a:b")
    assert capsys.readouterr().err == "arn:aws:a:b\n"


def test_a_table_whose_names_could_not_be_read_is_printed_row_by_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On 80 columns beside long numbers the names had no column left, and nothing said so."""
    monkeypatch.setenv("COLUMNS", "80")
    table = a_table("", "class", "width", "JCT", right=("width", "JCT"))
    table.add_row("a-class-with-a-long-name", f"8 x a-gpu-type-with-a-{'long-' * 9}name", "16.2 days")
    stdout_console().print(table)
    said = capsys.readouterr().out
    assert "class: a-class-with-a-long-name" in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "utf-8"])
def test_signs_that_an_encoding_lacks_become_the_nearest_ones(encoding: str) -> None:
    """A minus that becomes a question mark, or an error, says something else."""
    said = "−$5.00 ± 2 × 3 … → ≤ задача".encode(encoding, errors=NEAREST).decode(encoding)
    if encoding == "ascii":
        assert said == "-$5.00 +- 2 x 3 ... -> <= ??????"
    assert said[1:6] == "$5.00"
    assert said[0] in "-−"
