"""Tables for people: what somebody else has chosen, such as the key of a tag, is printed as it is."""

from __future__ import annotations

import pytest

from boa_daemon.cli.common.output import a_table, stderr_console, stdout_console


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
