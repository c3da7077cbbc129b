"""What costs can be grouped by; apart from the reports, so that the command line need not import them."""

from __future__ import annotations

import re

from boa_daemon.errors import not_one_of

GROUPINGS = ("job", "class", "user", "team", "market", "region", "machine", "day", "kind")
"""What costs are grouped by, besides `tag:KEY`."""
TAG = "tag:"
BY_FORM = rf"^({'|'.join(GROUPINGS)}|{TAG}.{{1,128}})$"
"""One of `GROUPINGS`, or `tag:` and the key of a tag."""


def grouping(text: str) -> str:
    """Return what costs are grouped by.

    Raises:
        ValueError: when costs are not grouped by that.
    """
    if re.fullmatch(BY_FORM, text):
        return text
    raise ValueError(not_one_of(text, (*GROUPINGS, f"{TAG}KEY")))
