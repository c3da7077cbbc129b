"""Alerts as lines of a file."""

from __future__ import annotations

from pathlib import Path


def append(address: str, sentence: str) -> None:
    """Write a sentence at the end of the file that the address names."""
    with Path(address).open("a", encoding="utf-8") as file:
        file.write(f"{sentence}\n")
