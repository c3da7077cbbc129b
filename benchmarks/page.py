"""The time of the dashboard page with 10,000 jobs on 2,000 nodes: its API answers, and its first paint.

    python benchmarks/page.py [--jobs 10000] [--nodes 2000] [--chromium /usr/bin/chromium]

Without a browser (and Playwright) only the answers are timed. The size of a history of 90 days is printed in
bytes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.server import ApiServer, tcp_socket
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.daemon.watch.minute_history import current_figures, pack
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

TOKEN = "a-token-that-is-long-enough"
CLASSES = """
gpu_types:
  a100: {instance_type: p4d.24xlarge}
classes:
- {name: small, arrivals_per_hour: 900, phases: [{size_gpu_hours: 6, speedup: {a100: {table: {1: 1}}}}]}
- {name: large, arrivals_per_hour: 100, phases: [{size_gpu_hours: 20, speedup: {a100: {table: {8: 6.5}}}}]}
"""


def a_large_site(folder: Path, jobs: int, nodes: int) -> DaemonInAFolder:
    """Return a daemon with this many jobs, most of them running on this many nodes."""
    (folder / "classes.yaml").write_text(CLASSES)
    clock = ManualClock(time.time() - 600.0)
    settings: dict[str, Any] = {
        "budget": {"usd_per_hour": 1e6, "usd_per_day_cap": 1e9, "max_instances": nodes},
        "learning": {"rates": False, "sizes": False},
        "cloud": {"instance_types": ["p4d.24xlarge"], "boot_seconds": 30.0},
        "workload": {"classes": str(folder / "classes.yaml")},
    }
    found = DaemonInAFolder(folder, clock, settings)
    names = ["small"] * 9 + ["large"]
    contents = [job_content(f"j{n}", hours=6.0, **{"class": names[n % 10]}, max_gpus=8) for n in range(jobs)]
    found.service.submit(contents, user="ann")
    for _ in range(5):
        found.daemon.tick()
        clock.instant += 60.0
    return found


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        folder = Path(name)
        play = a_large_site(folder, given.jobs, given.nodes)
        picture = play.daemon.standing.picture
        assert picture is not None
        print(f"{picture.running} jobs run and {picture.waiting} wait on {picture.nodes} nodes")
        tokens = folder / "tokens"
        tokens.write_text(f"{TOKEN} ann\n")
        tokens.chmod(0o600)
        tcp = tcp_socket("127.0.0.1:0")
        settings = ApiSettings.model_validate({"listen": "127.0.0.1:0", "tokens": str(tokens)})
        server = ApiServer(create_app(play.service, Authenticator(settings)), [tcp])
        server.start()
        url = f"http://127.0.0.1:{tcp.getsockname()[1]}"
        _answers(url)
        _history(play)
        if Path(given.chromium).exists():
            _paint(url, given.chromium)
        else:
            print(f"no browser at {given.chromium}: the first paint was not timed")
        server.stop()
        play.close()


def _answers(url: str) -> None:
    """Time the requests of the page."""
    with httpx.Client(
        base_url=f"{url}/v1/", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60.0
    ) as http:
        for path in (
            "page/now",
            "page/frontier",
            "page/history",
            "page/cost",
            "decisions?limit=50",
            "status",
            "jobs?limit=500",
        ):
            seconds = []
            for _ in range(5):
                began = time.perf_counter()
                answer = http.get(path).raise_for_status()
                seconds.append(time.perf_counter() - began)
            size = len(answer.content) / 1000
            print(f"{path:20} {1000 * statistics.median(seconds):7.1f} ms {size:8.1f} kB")


def _history(play: DaemonInAFolder) -> None:
    """Print the size of 90 days of minutes: random values, which compress worse than real ones."""
    import random  # noqa: PLC0415

    decision = play.daemon.standing.decision
    assert decision is not None
    figures = current_figures(decision.state, dict(play.storage.queue.active))
    draw = random.Random(0)
    columns = {
        key: [round(value * draw.uniform(0.9, 1.1), 4) for _ in range(60)] for key, value in figures.items()
    }
    size = len(pack(list(range(60)), columns))
    print(f"history: {len(figures)} columns, {size} bytes an hour, {size * 24 * 90 / 1e6:.1f} MB in 90 days")


def _paint(url: str, chromium: str) -> None:
    """Time from opening the page until the first view is drawn, with the user signed in."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(url)
        page.fill("input[type=password]", TOKEN)
        page.click("button[type=submit]")
        page.wait_for_selector(".tile")
        first, drawn = [], []
        for _ in range(7):
            page.goto(f"{url}/?again")
            page.wait_for_selector(".tile")
            times = page.evaluate(
                "() => ({first: performance.getEntriesByName('first-contentful-paint')[0].startTime, "
                "drawn: performance.getEntriesByName('boa-drawn')[0].startTime})"
            )
            first.append(times["first"])
            drawn.append(times["drawn"])
        print(
            f"first paint {statistics.median(first):.0f} ms, first view drawn "
            f"{statistics.median(drawn):.0f} ms"
        )
        browser.close()


if __name__ == "__main__":
    main()
