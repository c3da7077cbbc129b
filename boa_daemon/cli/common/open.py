"""``boa open``: open the daemon's page in a browser. Also write the page of a single answer to a file."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption
from boa_daemon.cli.common.output import print_text, stderr_console

OpenOption: TypeAlias = Annotated[
    bool,
    typer.Option("--open", help="Show the answer as a page in a browser; needs no daemon and no network."),
]
PageOption: TypeAlias = Annotated[
    Path | None, typer.Option("--page", metavar="FILE.html", help="Write that page to a file.")
]


def open_page(
    *,
    config: ConfigOption = None,
    socket: SocketOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Local port; 0: any free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or only print the address.")
    ] = True,
) -> None:
    """Open the daemon's page in a browser, read-only and with your rights, until Ctrl-C."""
    from boa_daemon.api.local_page import LocalPage  # noqa: PLC0415 - slow to import
    from boa_daemon.daemon.settings.daemon_paths import socket_of  # noqa: PLC0415
    from boa_daemon.daemon.settings.setting_layers import load_settings  # noqa: PLC0415

    settings = load_settings(config, flags={"daemon.socket": socket}).settings
    page = LocalPage(Path(socket) if socket else socket_of(settings), port=port)
    serving = threading.Thread(target=page.serve, name="boa-open", daemon=True)
    serving.start()
    url = page.url
    print_text(f"{url}\n")
    stderr_console().print(
        "[dim]The address works once, in one browser on this machine. Ctrl-C ends the page.[/]"
    )
    if browser:
        # Pass the URL in a private file: other users can see the command lines of processes.
        door = Path(tempfile.mkdtemp(prefix="boa-")) / "open.html"
        door.write_text(f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={url}">', encoding="utf-8")
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(door.as_uri())
    try:
        serving.join()
    finally:
        page.stop()


def show_page(title: str, answers: Mapping[str, Any], *, page: Path | None, opens: bool) -> None:
    """Write answers as a page; open it in a browser if `opens`."""
    from boa_daemon.dashboard.assets import write_static  # noqa: PLC0415

    if page is None and not opens:
        return
    if page is None:
        page = Path(tempfile.mkdtemp(prefix="boa-")) / "page.html"
    write_static(page, title=title, answers=answers)
    stderr_console().print(f"wrote {page}", markup=False)
    if opens:
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(page.resolve().as_uri())
