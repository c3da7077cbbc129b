"""What axe and our own checks find on a page that a browser shows.

axe-core comes with the library axe-playwright-python; without it our own checks alone are made: contrast,
names of controls and drawings, and boxes that scroll but cannot be reached by keyboard.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

CONTRAST = """() => {
  const light = (rgb) => rgb.map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const found = parse(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const faults = [];
  for (const node of document.querySelectorAll("body *")) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim())) continue;
    if (!node.checkVisibility() || node.closest(".skip, noscript, script, style, title")) continue;
    // A drawing whose colours a filter turns around has other colours than its elements say.
    const drawing = node.closest("svg");
    if (drawing && getComputedStyle(drawing).filter !== "none") continue;
    const style = getComputedStyle(node), text = parse(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(text.slice(0, 3)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faults.push(`${ratio.toFixed(2)}: ${node.tagName} ${node.textContent.slice(0, 40)}`);
  }
  return faults;
}"""
NAMES = """() => {
  const faults = [];
  const name = (node) => (node.getAttribute("aria-label") || node.textContent || node.title || "").trim()
    || [...(node.labels || [])].map((one) => one.textContent).join("").trim();
  for (const node of document.querySelectorAll("a, button, input, select, textarea, svg[role=img]"))
    if (node.checkVisibility() && !name(node)) faults.push(`no name: ${node.outerHTML.slice(0, 80)}`);
  for (const node of document.querySelectorAll("body *")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
    const inner = node.querySelector("a, button, input, select, [tabindex]");
    if (scrolls && node.scrollWidth > node.clientWidth + 1 && node.tabIndex < 0 && !inner)
      faults.push(`scrolls, but not by keyboard: ${node.outerHTML.slice(0, 80)}`);
  }
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page scrolls sideways");
  return faults;
}"""


def faults_of(page: Any) -> list[str]:
    """Return what is not accessible on a page of Playwright, one line each."""
    found = [*page.evaluate(CONTRAST), *page.evaluate(NAMES)]
    axe = _axe()
    if axe is not None:
        page.evaluate(axe)
        for one in page.evaluate("() => axe.run()")["violations"]:
            places = "; ".join(str(node["target"]) for node in one["nodes"][:3])
            found.append(f"axe {one['id']}: {one['help']}: {places}")
    return found


def _axe() -> str | None:
    """Return the script axe-core, or None where it is not installed."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        return None
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")
