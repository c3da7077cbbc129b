"""Settings that are read again while the daemon runs: what may change, and what waits for the next start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boa_daemon.daemon.config import Settings
from boa_daemon.daemon.setting_layers import load_settings
from boa_daemon.errors import InputError

_AT_START = {
    "cloud": None,
    "engine": None,
    "api": None,
    "gate": None,
    "daemon": ("state_dir", "socket", "database", "backup_seconds", "observe"),
}
"""Sections, or keys of them, that are read when the daemon starts."""
_PLANNED = ("instance_types", "boot_seconds", "commitments", "blocks")
"""Keys of [cloud] that are the plan's alone, unless the cloud is fixed when it is opened."""


class SettingsReader:
    """Reads the settings, again each time it is called; a file that was there and is gone is a mistake."""

    def __init__(self, explicit: Path | None, flags: Mapping[str, Any]) -> None:
        self._explicit, self._flags = explicit, flags
        self._files: tuple[Path, ...] = ()

    def __call__(self) -> Settings:
        """Return the settings as the files have them now.

        Raises:
            InputError: when they are wrong, or a file that was read before is not there any more: a daemon
                must not go on with the defaults because somebody's editor was between two states.
        """
        loaded = load_settings(self._explicit, flags=self._flags)
        gone = [str(path) for path in self._files if path not in loaded.files]
        if gone:
            raise InputError(
                f"{gone[0]} was read before and is not there any more",
                hint="Put it back, or start the daemon anew to go on without it",
            )
        self._files = loaded.files
        return loaded.settings


def keep_observe_mode(before: Settings, after: Settings) -> Settings:
    """Return new settings with what a running daemon must not change: whether it only observes.

    The cloud was opened for the one or the other: leases that nobody renews would end the nodes of a daemon
    that begins to act, and one that begins to observe would still end leaks.
    """
    daemon = after.daemon.model_copy(update={"observe": before.daemon.observe})
    return after.model_copy(update={"daemon": daemon})


def keys_needing_restart(before: Settings, after: Settings, *, is_cloud_fixed: bool) -> list[str]:
    """Return the keys that differ and count from the next start only, such as ``cloud.provider``.

    `is_cloud_fixed` says that the cloud rents the types, and plans the boots, that it was opened with.
    """
    found = []
    for section, keys in _AT_START.items():
        old, new = getattr(before, section), getattr(after, section)
        for key in keys or type(old).model_fields:
            is_planned = section == "cloud" and key in _PLANNED and not is_cloud_fixed
            if getattr(old, key) != getattr(new, key) and not is_planned:
                found.append(f"{section}.{key}")
    return found
