"""A real browser for tests: the system's chromium, driven by Playwright; where there is none, they say so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str | None:
    """Return the browser of CHROMIUM, or of the path."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def a_browser() -> Iterator[Any]:
    """Lend a browser; the test is left out where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="left out: pip install playwright")
    path = executable()
    if path is None:
        pytest.skip("left out: no browser. apt-get install chromium, or name one in CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        # Without its sandbox, which a container does not allow: it opens our own pages alone.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page with what it complained about and what it asked for."""

    def __init__(self, browser: Any, *, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, timezone_id="UTC"
        )
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda said: self.complaints.append(said.text) if said.type == "error" else None
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def close(self) -> None:
        self.context.close()
