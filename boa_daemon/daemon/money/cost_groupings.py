"""What costs can be grouped by; apart from the reports, so that the command line need not import them."""

from __future__ import annotations

GROUPINGS = ("job", "class", "user", "team", "market", "region", "machine", "day", "kind")
"""What costs are grouped by, besides `tag:KEY`."""
TAG = "tag:"
BY_FORM = rf"^({'|'.join(GROUPINGS)}|{TAG}.{{1,128}})$"
"""One of `GROUPINGS`, or `tag:` and the key of a tag."""
