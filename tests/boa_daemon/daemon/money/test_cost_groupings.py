"""Costs are grouped by a closed list of words, or by the key of a tag."""

from __future__ import annotations

import pytest

from boa_daemon.daemon.money.cost_groupings import GROUPINGS, grouping


@pytest.mark.parametrize("text", [*GROUPINGS, "tag:team", "tag:Cost Centre", "tag:" + "k" * 128])
def test_what_costs_are_grouped_by(text: str) -> None:
    """The key of a tag has at most 128 characters, as in EC2."""
    assert grouping(text) == text


@pytest.mark.parametrize("text", ["", "jobs", "job ", "tag", "tag:", "tag:" + "k" * 129, "day,job"])
def test_other_words_are_refused_with_the_list(text: str) -> None:
    """The error says what to type."""
    with pytest.raises(ValueError, match=r"'job', 'class', 'user', .*'tag:KEY'"):
        grouping(text)
