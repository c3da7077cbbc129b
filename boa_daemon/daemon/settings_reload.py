"""Reload settings while the daemon runs: which may change, and which need a restart."""

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
"""Sections, or some of their keys, that are read only when the daemon starts."""
_PLANNED = ("instance_types", "boot_seconds", "commitments", "blocks")
"""Keys of [cloud] that only the plan uses, unless the cloud fixes them when it is opened."""


class SettingsReader:
    """Reads the settings at each call; a file that existed before and is missing is an error."""

    def __init__(self, explicit: Path | None, flags: Mapping[str, Any]) -> None:
        self._explicit, self._flags = explicit, flags
        self._files: tuple[Path, ...] = ()

    def __call__(self) -> Settings:
        """Return the present settings.

        A missing file is an error, because the daemon must not use defaults while an editor replaces the
        file.

        Raises:
            InputError: when the settings are wrong, or a file that was read before is missing.
        """
        loaded = load_settings(self._explicit, flags=self._flags)
        gone = [str(path) for path in self._files if path not in loaded.files]
        if gone:
            raise InputError(
                f"the settings file {gone[0]} was read before and is missing now",
                hint="Put it back, or restart the daemon to continue without it",
            )
        self._files = loaded.files
        return loaded.settings


def keep_observe_mode(before: Settings, after: Settings) -> Settings:
    """Return new settings with the old `observe`, which a running daemon must not change.

    The cloud was opened for one of the modes. A daemon that began to act would lose its nodes, because
    nothing renews their leases; one that began to observe would still end leaks.
    """
    daemon = after.daemon.model_copy(update={"observe": before.daemon.observe})
    return after.model_copy(update={"daemon": daemon})


def keys_needing_restart(before: Settings, after: Settings, *, is_cloud_fixed: bool) -> list[str]:
    """Return the changed keys that need a restart, such as ``cloud.provider``.

    `is_cloud_fixed` says that the cloud keeps the types and boot times that it was opened with.
    """
    found = []
    for section, keys in _AT_START.items():
        old, new = getattr(before, section), getattr(after, section)
        for key in keys or type(old).model_fields:
            is_planned = section == "cloud" and key in _PLANNED and not is_cloud_fixed
            if getattr(old, key) != getattr(new, key) and not is_planned:
                found.append(f"{section}.{key}")
    return found
