"""Reload settings while the daemon runs: which may change, and which need a restart."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boa_daemon.daemon.settings.applied_settings import (
    FOR_ONE_RUN,
    AppliedSettings,
    pointed_state,
    read_applied,
    unmounted_disk,
    write_applied,
)
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.cost_copies import CostFiles, in_place_of
from boa_daemon.daemon.settings.cost_files import cost_changes, read_cost_files
from boa_daemon.daemon.settings.daemon_paths import daemon_paths
from boa_daemon.daemon.settings.named_socket import placed
from boa_daemon.daemon.settings.setting_changes import SettingChange, changes_between, code_of, refusal
from boa_daemon.daemon.settings.setting_layers import LoadedSettings, load_settings, origin_of, with_flags
from boa_daemon.daemon.settings.setting_paths import with_paths
from boa_daemon.errors import InputError

_LOG = logging.getLogger("boa")

_AT_START = {
    "cloud": None,
    "engine": None,
    "api": None,
    "gate": None,
    "daemon": ("state_dir", "socket", "database", "backup_seconds", "observe"),
}
"""Sections, or some of their keys, that are read only when the daemon starts."""
_STATE_FOLDER = ("daemon", "state_dir")
_PLANNED = ("instance_types", "boot_seconds", "commitments", "blocks")
"""Keys of [cloud] that only the plan uses, unless the cloud fixes them when it is opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChanges:
    """What the files and the environment would change of the settings in force; `code` consents to it."""

    changes: tuple[SettingChange, ...] = ()
    code: str = ""
    files: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def needs_consent(self) -> bool:
        """Whether a limit would be loosened, or a value that was set would give way to a default."""
        return any(change.why for change in self.changes)

    def to_document(self) -> dict[str, Any]:
        """Return the changes as JSON."""
        return {
            "changes": [change.to_document() for change in self.changes],
            "needs_consent": self.needs_consent,
            "code": self.code,
            "files": [str(path) for path in self.files],
            "warnings": list(self.warnings),
        }


class SettingsReader:
    """Reads the settings at each call, and never lets limits give way to looser ones without consent.

    At the first call, when the files are unreadable or would loosen limits, the settings that the last daemon
    of the state folder applied stay in force, and `note` says so; later calls raise instead, and the caller
    keeps what it has. `confirm` is to be called once the settings of the last call are in use.
    """

    def __init__(
        self, explicit: Path | None, flags: Mapping[str, Any], *, environment: Mapping[str, str] | None = None
    ) -> None:
        if folder := flags.get("daemon.state_dir"):
            flags = {**flags, "daemon.state_dir": placed(folder, None)}
        self._explicit, self._flags, self._environment = explicit, flags, environment
        self._in_force: AppliedSettings | None = None
        self._candidate: AppliedSettings | None = None
        self._files: tuple[Path, ...] = ()
        self._is_unsaved, self._has_database = False, True
        self._database: str | None = None
        """The database of the last daemon."""
        self.lock = threading.RLock()
        """Held by a caller from a call to its `confirm`."""
        self._state: tuple[Path, bool] | None = None
        self.warnings: tuple[str, ...] = ()
        """Sentences about settings in force that do not go together."""
        self.note = ""
        """Why the settings in force are not those of the files; empty when they are."""

    def __call__(self, *, consent: str = "") -> Settings:
        """Return the settings to use; `consent` is the code of changes that may loosen limits.

        Raises:
            InputError: when the settings are wrong, a file that was read before is missing, or a limit would
                be loosened without consent; at the first call only if no daemon applied settings before.
        """
        if self._in_force is None:
            return self._first(consent)
        try:
            loaded = self._load()
            costs = read_cost_files(loaded.stated)
            pending = self._compare(loaded, costs, self._in_force)
            self._refuse_missing(loaded, is_meant=consent == pending.code)
            self._check_consent(loaded, pending, consent)
        except InputError as error:
            self.note = f"the settings stay as they were: {error}"
            raise
        return self._use(loaded, costs)

    def pending(self) -> PendingChanges:
        """Return what the files would change of the settings in force.

        Raises:
            InputError: when the files cannot be read.
        """
        loaded = self._load()
        costs = read_cost_files(loaded.stated)
        found = self._compare(loaded, costs, self._in_force or self._last_applied(loaded))
        return replace(found, warnings=loaded.warnings())

    def confirm(self, *, is_opened: bool = True) -> None:
        """Note that the settings of the last call are in force, and write them to the state folder.

        A database that could not be opened yet (`is_opened`) is not written down: nothing is spent in it, and
        who named a wrong one may go back without consent.
        """
        self._has_database = is_opened
        if self._candidate is not None:
            self._in_force, self._candidate, self._is_unsaved = self._candidate, None, True
        self.save()

    def save(self) -> None:
        """Write the settings in force to the state folder, if that failed before or was not done."""
        if not self._is_unsaved or self._in_force is None or self._state is None:
            return
        if os.environ.get(FOR_ONE_RUN):
            return  # `boa run` and `boa bench` change settings for their own jobs alone.
        if not self._has_database and self._database != _database_of(self._in_force):
            return
        try:
            write_applied(self._state[0], self._in_force, self._explicit, points=self._state[1])
        except OSError as error:
            _LOG.warning("the settings in force could not be written down: %s", error.strerror or error)
        else:
            self._is_unsaved = False

    def accept(self) -> None:
        """Write the settings of the files as those in force, for the next daemon, whatever was in force.

        Raises:
            InputError: when the files are wrong.
            OSError: when the state folder cannot be written.
        """
        loaded = self._load()
        self._use(loaded, read_cost_files(loaded.stated))
        assert self._state is not None
        assert self._candidate is not None
        write_applied(self._state[0], self._candidate, self._explicit, points=self._state[1])

    def _first(self, consent: str) -> Settings:
        """Return the settings to start with."""
        loaded: LoadedSettings | None = None
        fault: InputError | None = None
        last: AppliedSettings | None = None
        costs = CostFiles()
        try:
            loaded = self._load()
        except InputError as error:
            fault = error
        last = self._last_applied(loaded)
        self._database = None if last is None else _database_of(last)
        if loaded is not None:
            try:
                costs = read_cost_files(loaded.stated)
                pending = self._compare(loaded, costs, last)
                self._refuse_missing(loaded, is_meant=consent == pending.code)
                self._check_consent(loaded, pending, consent)
            except InputError as error:
                fault = error
        if fault is None and loaded is not None:
            return self._use(loaded, costs)
        if last is None:
            assert fault is not None
            raise fault
        files = [Path(name) for name in last.files]
        try:
            kept = with_flags(last.given, self._flags, files=files)
            settings = self._use(kept, last.costs)
            if last.costs is not None and self._state is not None:
                # Where a file says something else now, its copy holds as well.
                settings = with_flags(
                    in_place_of(last.given, self._state[0], last.costs), self._flags, files=files
                ).settings
        except InputError:
            assert fault is not None
            raise fault from None
        self.note = f"the settings that the last daemon applied stay in force: {fault}"
        return settings

    def _load(self) -> LoadedSettings:
        return load_settings(self._explicit, environment=self._environment, flags=self._flags)

    def _use(self, loaded: LoadedSettings, costs: CostFiles | None) -> Settings:
        """Keep settings as those that the caller is about to use."""
        self.note = ""
        self._files, self.warnings = loaded.files, loaded.warnings()
        self._candidate = _applied(loaded, costs)
        is_pointed = loaded.stated.daemon.state_dir is not None and not self._flags.get("daemon.state_dir")
        self._state = (daemon_paths(loaded.settings).state, is_pointed)
        return loaded.settings

    def _compare(
        self, loaded: LoadedSettings, costs: CostFiles, last: AppliedSettings | None
    ) -> PendingChanges:
        """Return what changes between settings that were applied and those of the files."""
        new = _applied(loaded, costs)
        if last is not None and last.costs is None:
            last = replace(last, given=_from_here(last.given), complete=_from_here(last.complete))
        changes = () if last is None else tuple(
            changes_between(last.complete, new.complete, given_before=last.given, given_after=new.given)
        )  # fmt: skip
        if last is not None and (moved := _forgotten_state(last, loaded)):
            changes = tuple(replace(one, why=moved) if one.path == _STATE_FOLDER else one for one in changes)
        if last is not None and last.costs is not None:
            changes += tuple(cost_changes(last.costs, costs, loaded.stated, now=time.time()))
        return PendingChanges(changes=changes, code=code_of(loaded.given, costs.costs), files=loaded.files)

    def _check_consent(self, loaded: LoadedSettings, pending: PendingChanges, consent: str) -> None:
        """Refuse changes that loosen limits unless a command or the file consents to exactly these."""
        if pending.needs_consent and pending.code not in (consent, loaded.stated.daemon.accept_changes):
            raise LooserLimits(refusal(pending.changes, pending.code))

    def _refuse_missing(self, loaded: LoadedSettings, *, is_meant: bool) -> None:
        """Refuse to go on without a file that was read before, unless that is meant."""
        # The files of the last daemon are named from the root, those that are read as they were found.
        there = {os.path.abspath(path) for path in loaded.files}
        gone = [str(path) for path in self._files if os.path.abspath(path) not in there]
        if gone and not is_meant:
            raise InputError(
                f"the settings file {gone[0]} was read before and is missing now",
                hint="Put it back, or continue without it by `boa config apply --yes`",
            )

    def _last_applied(self, loaded: LoadedSettings | None) -> AppliedSettings | None:
        """Return what was applied last: in the named state folder, else in the one of these files."""
        if self._flags.get("daemon.state_dir"):
            return read_applied(Path(self._flags["daemon.state_dir"]))
        named = None if loaded is None else loaded.stated.daemon.state_dir
        if named and (found := read_applied(Path(named))):
            return found
        if named and (mount := unmounted_disk(self._explicit, Path(named))):
            raise InputError(
                f"the state folder {named} was on the disk at {mount}, which is not mounted: the limits in "
                "force, bills and jobs are there",
                hint="Mount it; `boa config apply --yes` begins anew without it",
                setting=_STATE_FOLDER,
            )
        pointed = pointed_state(self._explicit)
        found = (None if pointed is None else read_applied(pointed)) or read_applied(
            daemon_paths(Settings()).state
        )
        if named and found is not None and not self._is_of_these_files(found, loaded):
            return None  # Another daemon's: its settings came from elsewhere, or this one's from a variable.
        return found

    def _is_of_these_files(self, applied: AppliedSettings, loaded: LoadedSettings | None) -> bool:
        """Whether settings were applied from the files that name another state folder now."""
        assert loaded is not None
        place = origin_of(("daemon", "state_dir"), loaded.documents)
        return place is not None and os.path.abspath(place[0]) in applied.files


class LooserLimits(InputError):
    """New settings would loosen limits, and nobody consented."""


def running_socket(explicit: Path | None) -> Path | None:
    """Return the socket of the daemon that last ran by these files, if it exists, whatever they say now."""
    state = pointed_state(explicit)
    if state is None:
        return None
    last: Settings | None = None
    with suppress(InputError, ValueError):
        applied = read_applied(state)
        last = None if applied is None else Settings.model_validate(applied.given)
    socket = daemon_paths(last or Settings.model_validate({"daemon": {"state_dir": str(state)}})).socket
    return socket if socket.exists() else None


def _forgotten_state(last: AppliedSettings, loaded: LoadedSettings) -> str:
    """Return why another state folder needs consent: in a new one nothing was spent and no job runs."""
    before, after = dict(last.complete["daemon"]).get("state_dir"), loaded.stated.daemon.state_dir
    if after is None or before == after or read_applied(Path(after)) is not None:
        return ""
    return "what was spent and the jobs that run would be forgotten; move the old folder there"


def _database_of(applied: AppliedSettings) -> str | None:
    """Return the URL of the database that settings give; None: the file in the state folder."""
    return dict(applied.given.get("daemon") or {}).get("database")


def _from_here(content: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what an earlier version applied: it looked for price files of regions in the working folder."""
    return {**content, "cloud": with_paths("cloud", content.get("cloud", {}), Path.cwd())}


def _applied(loaded: LoadedSettings, costs: CostFiles | None) -> AppliedSettings:
    """Return settings as they are written down, as JSON reads them back."""
    given, complete = loaded.given, loaded.stated.model_dump(mode="json")
    return AppliedSettings(
        given=json.loads(json.dumps(given, default=str)),
        complete=complete,
        files=tuple(os.path.abspath(path) for path in loaded.files),
        costs=costs,
    )


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
    if before.plugins != after.plugins:
        found.append("plugins")
    return found
