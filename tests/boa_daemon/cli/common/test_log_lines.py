"""Logs of several nodes as one text."""

from __future__ import annotations

from boa_daemon.cli.common.log_lines import LogView, Reader


def chunk(text: str, *, begin: int = 0, node: int = 0) -> dict[str, object]:
    return {"text": text, "next_offset": begin + len(text), "node": node}


def test_the_view_of_a_rank_shows_only_its_whole_lines() -> None:
    """A piece of the log may end within a line; the rank's mark is removed."""
    shown, reader = LogView(rank=3), Reader()
    first = "banner\n[rank 0] zero\n[rank 3] th"
    assert shown.take(reader, chunk(first)) == ""
    assert (
        shown.take(reader, chunk("ree\n[rank 3] more\n[rank 30] no\n", begin=len(first))) == "three\nmore\n"
    )
    assert shown.has_shown


def test_the_view_of_all_nodes_marks_each_line_with_its_node() -> None:
    """An unfinished last line is marked as well."""
    shown, readers = LogView(marks_nodes=True), [Reader(), Reader()]
    said = [shown.take(reader, chunk("a\nb", node=node)) for node, reader in enumerate(readers)]

    assert said == ["node 0: a\n", "node 1: a\n"]
    assert [shown.rest(reader) for reader in readers] == ["node 0: b\n", "node 1: b\n"]


def test_a_log_without_marks_belongs_to_rank_0() -> None:
    """A view of rank 1 shows none of its lines."""
    assert LogView(rank=0).take(Reader(), chunk("one\ntwo\n")) == "one\ntwo\n"
    other = LogView(rank=1)
    assert other.take(Reader(), chunk("one\ntwo\n")) == ""
    assert not other.has_shown


def test_the_default_view_shows_the_text_unchanged() -> None:
    """An unfinished line is shown at once."""
    reader = Reader()
    assert LogView().take(reader, chunk("half a li")) == "half a li"
    assert (reader.offset, reader.is_new) == (9, True)
