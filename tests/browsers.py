"""The system's chromium, driven by Playwright; tests are skipped with a reason if there is no browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str | None:
    """Return the browser that CHROMIUM names, else one from the PATH."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def a_browser() -> Iterator[Any]:
    """Yield a browser; skip the test if Playwright or a browser is missing."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="left out: pip install playwright")
    path = executable()
    if path is None:
        pytest.skip("left out: no browser. apt-get install chromium, or name one in CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        # A container does not allow the sandbox; the browser opens only our own pages.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A browser page that records its errors and its requests."""

    def __init__(self, browser: Any, *, width: int = 1280, scheme: str = "light", zone: str = "UTC") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, timezone_id=zone
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
