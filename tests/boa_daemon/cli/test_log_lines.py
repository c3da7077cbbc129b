"""Logs of several nodes as one text."""

from __future__ import annotations

from boa_daemon.cli.log_lines import LogView, Reader


def chunk(text: str, *, begin: int = 0, node: int = 0) -> dict[str, object]:
    return {"text": text, "next_offset": begin + len(text), "node": node}


def test_only_the_lines_of_a_rank_and_whole_ones() -> None:
    """A piece may end within a line; the mark goes, and lines of others and of torchrun stay out."""
    shown, reader = LogView(rank=3), Reader()
    first = "banner\n[rank 0] zero\n[rank 3] th"
    assert shown.take(reader, chunk(first)) == ""
    assert (
        shown.take(reader, chunk("ree\n[rank 3] more\n[rank 30] no\n", begin=len(first))) == "three\nmore\n"
    )
    assert shown.has_shown


def test_all_nodes_with_their_numbers() -> None:
    """Each line says its node, also one that nothing has ended."""
    shown, readers = LogView(marks_nodes=True), [Reader(), Reader()]
    said = [shown.take(reader, chunk("a\nb", node=node)) for node, reader in enumerate(readers)]

    assert said == ["node 0: a\n", "node 1: a\n"]
    assert [shown.rest(reader) for reader in readers] == ["node 0: b\n", "node 1: b\n"]


def test_a_job_of_one_rank_has_no_marks() -> None:
    """Rank 0 printed it all; there is no rank 1."""
    assert LogView(rank=0).take(Reader(), chunk("one\ntwo\n")) == "one\ntwo\n"
    other = LogView(rank=1)
    assert other.take(Reader(), chunk("one\ntwo\n")) == ""
    assert not other.has_shown


def test_without_a_choice_the_text_is_as_it_was_printed() -> None:
    """No line is held back until it is whole."""
    reader = Reader()
    assert LogView().take(reader, chunk("half a li")) == "half a li"
    assert (reader.offset, reader.is_new) == (9, True)
