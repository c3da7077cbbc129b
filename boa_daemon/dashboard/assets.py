"""Files of the page: served by the daemon, or written as one static file with its answers.

The scripts are plain scripts that are concatenated, so both variants run the same code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from boa_daemon.errors import InputError
from boa_daemon.job.whole_files import write_whole
from boa_daemon.tick.facts.reasons import SENTENCES, WAIT_REASON_TEXTS

SCRIPTS = ("lib", "charts", "solver", "orders", "now", "money", "decisions", "job", "plan", "compare", "app")
"""Scripts in the order of concatenation."""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: nothing from other hosts, and no inline code."""


@cache
def asset(name: str) -> bytes:
    """Return a file of the page: `index.html`, `page.css` or `page.js`."""
    folder = files("boa_daemon") / "data" / "page"
    if name == "page.js":
        parts = [(folder / f"{part}.js").read_text(encoding="utf-8") for part in SCRIPTS]
        return ('"use strict";\n(() => {\n' + "\n".join([words(), *parts]) + "\n})();\n").encode()
    return (folder / name).read_bytes()


def words() -> str:
    """Return the script with the texts of the codes of waiting jobs and of what is held back."""
    held = f"const HELD_WORDS = {json.dumps(dict(SENTENCES))};"
    return f"const WAIT_WORDS = {json.dumps(dict(WAIT_REASON_TEXTS))};\n{held}"


def write_static(path: Path, *, title: str, answers: Mapping[str, Any]) -> None:
    """Write the page as one static file; `answers` maps each request path to its document.

    Raises:
        InputError: when the file cannot be written.
    """
    try:
        write_whole(path, static_page(title=title, answers=answers))
    except OSError as error:
        raise InputError(f"cannot write the page: {error.strerror}", file=path) from error


def static_page(*, title: str, answers: Mapping[str, Any]) -> str:
    """Return the page as one HTML document, which runs its own script and fetches nothing."""
    style, script = asset("page.css").decode(), asset("page.js").decode()
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # Escape "<": within a script element "</" could end it, and "<!--" could begin a comment.
    data = json.dumps({"title": title, "answers": json_safe(answers)}, allow_nan=False).replace(
        "<", "\\u003c"
    )
    page = asset("index.html").decode()
    for link, text in (
        ('<link rel="stylesheet" href="page.css">', f"<style>{style}</style>"),
        (
            '<script src="page.js" defer></script>',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        ),
        (
            "</body>",
            f'<script type="application/json" id="answers">{data}</script>\n'
            f"<script>{script}</script>\n</body>",
        ),
    ):
        page = page.replace(link, text)
    return page


def json_safe(value: Any) -> Any:
    """Return a value in JSON types; numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    return value


def _hash(text: str) -> str:
    """Return the Content-Security-Policy source that allows one inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
