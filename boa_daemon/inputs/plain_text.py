"""Text that others wrote, made safe for a terminal, a mail and a log of ours.

A terminal obeys control characters: a job could print a sequence that sets the title, overwrites what stands
above, or writes into the clipboard, and whoever lists jobs would see something that is not so. Text is
cleaned where it leaves BOA for a person. Answers of the API and piped logs stay as they are.
"""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_LINE_END = re.compile(r"\r+\n?")
_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_HIDDEN = [
    0x7F,
    *range(0x80, 0xA0),  # C1: one character stands for an escape sequence.
    *(0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),  # Change the direction.
    *(0x200B, 0x2028, 0x2029, 0xFEFF, *range(0xFFF9, 0xFFFC)),
    *range(0xD800, 0xE000),  # Halves of characters, which cannot be written.
    *range(0xE0000, 0xE0080),
]
_TABLE = _PICTURES | dict.fromkeys(_HIDDEN, 0xFFFD) | {0x7F: 0x2421}


def plain_text(text: str) -> str:
    """Return a text with visible signs in place of control characters; tabs and ends of lines stay.

    Colours are left out. A return to the begin of a line, as progress bars print it, ends the line.
    """
    if text.isascii() and text.isprintable():
        return text
    return _LINE_END.sub("\n", _COLOUR.sub("", text)).translate(_TABLE)


def one_line(text: str) -> str:
    """Return a text of one line, made plain: ends of lines are spaces."""
    return " ".join(plain_text(text).split())
