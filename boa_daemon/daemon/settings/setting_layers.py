"""Load settings from files, the environment and flags; the strongest layer wins, key by key.

flags > ``BOA_<SECTION>_<KEY>`` in the environment > ``./boa.toml`` > the user's file > the system's file >
defaults.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from boa_daemon.backends.cloud_kinds import CLOUD_KINDS, cloud_kind
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.daemon.settings.applied_settings import is_descriptor
from boa_daemon.daemon.settings.config import (
    AWS_ONLY,
    BudgetSettings,
    Settings,
    TeamSettings,
    UserSettings,
)
from boa_daemon.daemon.settings.named_socket import folder_of, setting_files
from boa_daemon.daemon.settings.setting_conflicts import SettingConflict, refused, warned_of
from boa_daemon.daemon.settings.setting_paths import MAY_BE_EMPTY, PATHS, with_paths
from boa_daemon.engines.engine_kinds import ENGINE_KINDS
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.document_file import Document, read_document
from boa_daemon.inputs.schema import Limit, Strict, checked
from policies import plugins
from policies.errors import BrokenPlugin, UnknownPolicy
from policies.registry import find_placer, find_policy

PREFIX = "BOA_"
OF_TEAM, REFERENCES = "team:", ("env:", "ssm:", "secretsmanager:")
"""Prefix of a team in [secrets], and prefixes of references to secrets."""
_NO_SETTINGS = frozenset({"BOA_GATE", "BOA_GATE_HYBRID", "BOA_SLURM_NODE"})
"""Variables of jobs whose names begin like a section's."""
_RESEMBLANCE = 0.85
"""From which a variable's name is a setting's, misspelt: two letters in BUDGET_USD_PER_DAY_CAP."""
_BUDGETS = frozenset({"usd_per_hour", "usd_per_month"})
_PARTS: tuple[tuple[str, str, plugins.PluginGroup, Collection[str]], ...] = (
    ("cloud", "provider", "boa.clouds", CLOUD_KINDS),
    ("engine", "name", "boa.engines", ENGINE_KINDS),
)
"""Sections and keys that plug-ins extend, their plug-in groups, and the built-in names."""
_SECTIONS = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Strict)
}


_LIMITS = sorted(
    {
        key
        for kind in (BudgetSettings, UserSettings, TeamSettings)
        for key, known in kind.model_fields.items()
        if "_" in key and any(isinstance(each, Limit) for each in known.metadata)
    }
)
"""Names of limits that are clear without their section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings, the files that they came from, weakest first, and what files and environment gave.

    `stated` are the settings without the flags of the command line; `documents` are the files.
    """

    settings: Settings
    files: tuple[Path, ...]
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stated: Settings = field(default_factory=Settings)
    documents: tuple[Document, ...] = ()

    def warnings(self) -> tuple[str, ...]:
        """Return sentences about settings that do not go together, with file and line."""
        return tuple(str(_located(conflict, self.documents)) for conflict in warned_of(self.settings))


def load_settings(
    explicit: Path | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> LoadedSettings:
    """Return the settings; `flags` maps ``section.key`` to a value, None when not given.

    Raises:
        InputError: when a file cannot be read or a key is unknown or wrong, with file and line.
    """
    merged: dict[str, dict[str, Any]] = {}
    files = setting_files(explicit)
    documents = []
    for path in files:
        _check_is_a_file(path)
        document = read_document(path, otherwise="toml")
        documents.append(document)
        if not isinstance(document.content, Mapping):
            raise document.error("settings are a table with sections such as [budget]")
        _check_names(checked(Settings, document.content, document=document), document)
        try:
            _merge(merged, document.content, beside=folder_of(path))
        except InputError as error:
            raise document.error(error.problem, at=error.setting or (), hint=error.hint) from None
    words = from_environment(os.environ if environment is None else environment)
    _checked(words, "the environment")
    _merge(merged, words)
    return with_flags(merged, flags or {}, files=files, documents=documents)


def _check_is_a_file(path: Path) -> None:
    """Refuse a pipe or a device in a file's place, which a daemon would read for ever; `<(...)` is a shell's.

    Raises:
        InputError: when it is one.
    """
    if (
        str(path) != "-"
        and not is_descriptor(path)
        and path.exists()
        and not (path.is_file() or path.is_dir())
    ):
        raise InputError("it is a pipe or a device", file=path, hint="Put a plain file in its place")


def with_flags(
    given: Mapping[str, Mapping[str, Any]],
    flags: Mapping[str, Any],
    *,
    files: Sequence[Path] = (),
    documents: Sequence[Document] = (),
) -> LoadedSettings:
    """Return the settings that files and environment give, under the flags.

    Raises:
        InputError: when they are wrong together.
    """
    merged = {section: dict(table) for section, table in given.items()}
    stated = _checked(merged, "the settings")
    words = _nested({key: value for key, value in flags.items() if value is not None})
    _merge(merged, words)
    settings = _checked(merged, "the settings") if words else stated
    _check_names(settings, Document(name="the settings", content=merged))
    check_owners(settings)
    for conflict in refused(settings):
        raise _located(conflict, documents)
    return LoadedSettings(
        settings=settings, files=tuple(files), given=given, stated=stated, documents=tuple(documents)
    )


def _located(conflict: SettingConflict, documents: Sequence[Document]) -> InputError:
    """Return a conflict as an error, with the file and line that set it."""
    file, line = origin_of(conflict.setting, documents) or (None, None)
    return InputError(conflict.problem, file=file, line=line, hint=conflict.hint, setting=conflict.setting)


def origin_of(setting: Sequence[str], documents: Sequence[Document]) -> tuple[str, int | None] | None:
    """Return file and line of the strongest layer that sets a setting; None if no file does."""
    for document in reversed(documents):
        value: object = document.content
        depth = 0
        for key in setting:
            if not isinstance(value, Mapping) or key not in value:
                break
            value, depth = value[key], depth + 1
        if depth >= min(2, len(setting)):
            return document.name, document.line_of(tuple(setting))
    return None


def _check_names(settings: Settings, document: Document) -> None:
    """Refuse an unknown cloud, engine, policy or placer, with which the daemon could not start or tick.

    Raises:
        InputError: when a name is unknown; the error names the line.
    """
    for section, key, group, ours in _PARTS:
        name = getattr(getattr(settings, section), key)
        if name not in ours and name not in (added := plugins.names(group)):
            said = f"[{section}] {key}: {name!r} is not known"
            raise document.error(said, at=(section, key), hint=did_you_mean(name, (*ours, *added)))
    _check_plugins(settings, document)
    for key, find in (("policy", find_policy), ("placer", find_placer)):
        try:
            find(getattr(settings.workload, key))
        except UnknownPolicy as error:
            raise document.error(str(error), at=("workload", key)) from None


def _check_plugins(settings: Settings, document: Document) -> None:
    """Check the tables of plug-ins by the models that the plug-ins state, in the words of all other sections.

    Raises:
        InputError: when no plug-in has the name, it takes no settings, or a key is unknown or wrong.
    """
    for name, table in settings.plugins.items():
        at = ("plugins", name)
        groups = [group for group in plugins.GROUPS if name in plugins.names(group)]
        if not groups:
            known = {each for group in plugins.GROUPS for each in plugins.names(group)}
            said = f"[plugins.{name}]: no plug-in has this name"
            raise document.error(said, at=at, hint=did_you_mean(name, known) or "None is installed")
        try:
            model = getattr(plugins.load(groups[0], name), "Settings", None)
        except BrokenPlugin as error:
            raise document.error(f"[plugins.{name}]: {error}", at=at) from None
        if not (isinstance(model, type) and issubclass(model, Strict)):
            raise document.error(f"[plugins.{name}]: the plug-in takes no settings", at=at)
        checked(model, table, document=document, at=at)


def check_owners(settings: Settings) -> None:
    """Refuse rights to secrets that name an unknown team or a pattern that matches no reference.

    Raises:
        InputError: when a right is refused; the error names the pattern.
    """
    for pattern, owners in settings.secrets.items():
        if pattern != "*" and not pattern.startswith(REFERENCES):
            hint = f'One begins with {", ".join(REFERENCES)}; "*" is all of them'
            raise InputError(
                f"[secrets] {pattern!r} fits no reference", hint=hint, setting=("secrets", pattern)
            )
        for owner in owners:
            team = owner.removeprefix(OF_TEAM)
            if team != owner and team not in settings.teams:
                hint = did_you_mean(team, settings.teams) or "See [teams.NAME]"
                raise InputError(
                    f"[secrets] {pattern!r}: there is no team {team!r}",
                    hint=hint,
                    setting=("secrets", pattern),
                )


def _merge(
    merged: dict[str, dict[str, Any]], words: Mapping[str, Any], *, beside: Path | None = None
) -> None:
    """Merge a stronger layer into the others, key by key; paths in a file are relative to the file."""
    for section, values in words.items():
        table = with_paths(section, values, beside)
        before = merged.get(section, {})
        if section == "budget":
            # A budget in a stronger layer replaces the other kind of budget in a weaker one.
            before = {
                key: before[key] for key in before if not _BUDGETS & {key} or not _BUDGETS & table.keys()
            }
        merged[section] = before | table


def _nested(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return ``section.key`` names as nested tables."""
    tables: dict[str, dict[str, Any]] = {}
    for name, value in flat.items():
        section, _, key = name.partition(".")
        tables.setdefault(section, {})[key] = value
    return tables


def from_environment(environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the settings in ``BOA_<SECTION>_<KEY>`` variables.

    Other BOA_ variables are ignored, as those of a job, unless they look like a misspelt setting: a cap that
    a variable was to state must not be left out in silence.

    Raises:
        InputError: when a variable names no setting and looks as if it was to.
    """
    tables: dict[str, dict[str, Any]] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name in _NO_SETTINGS:
            continue
        words = name.removeprefix(PREFIX).lower()
        section = next((known for known in _SECTIONS if words.startswith(f"{known}_")), None)
        if section is None:
            _refuse_misspelt(name, words)
            continue
        key = words.removeprefix(f"{section}_")
        kind = _SECTIONS[section]
        if key not in kind.model_fields:
            hint = did_you_mean(key, kind.model_fields)
            raise InputError(f"the environment variable {name} names no setting of [{section}]", hint=hint)
        if not text and key in PATHS and key not in MAY_BE_EMPTY:
            continue  # A variable that a container or a service leaves empty names no file.
        tables.setdefault(section, {})[key] = _value(text, kind, key)
    return tables


def _refuse_misspelt(name: str, words: str) -> None:
    """Refuse a variable that looks like a setting: section misspelt, left out, or one of names.

    Raises:
        InputError: when it does.
    """
    problem = f"the environment variable {name} names no setting"
    if words in _SECTIONS:
        raise InputError(
            problem,
            hint=f"Name a key of [{words}]: {name}_{next(iter(_SECTIONS[words].model_fields)).upper()}",
        )
    tables = Settings.model_fields.keys() - _SECTIONS.keys()
    if section := next((each for each in tables if words.startswith(f"{each}_")), None):
        raise InputError(problem, hint=f"[{section}] can be given in a file only")
    known = {f"{section}_{key}": key for section, kind in _SECTIONS.items() for key in kind.model_fields}
    meant = [full for full, key in known.items() if key == words and "_" in key]
    meant = meant or get_close_matches(re.sub("_+", "_", words), known, n=1, cutoff=_RESEMBLANCE)
    if meant:
        raise InputError(problem, hint=f"Did you mean {PREFIX}{meant[0].upper()}?")
    if key := next((key for key in _LIMITS if words.endswith(f"_{key}")), None):
        raise InputError(problem, hint=f"A limit {key!r} of a user or a team can be given in a file only")


def _value(text: str, kind: type[Strict], key: str) -> Any:
    """Return a variable's value: as text if the setting is text, else as a list or JSON."""
    wants_text = "str" in str(kind.model_fields[key].annotation) and "list" not in str(
        kind.model_fields[key].annotation
    )
    if wants_text or "Literal" in str(kind.model_fields[key].annotation):
        return text
    if "list" in str(kind.model_fields[key].annotation) and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _checked(words: Mapping[str, Any], name: str) -> Settings:
    """Validate one layer, or all of them merged; errors quote `name` as the source."""
    return checked(Settings, words, document=Document(name=name, content=words, language="json"))


def setting_rows() -> Sequence[tuple[str, str, str, str]]:
    """Return (section, key, default, meaning) of every setting, for the reference page."""
    rows = []
    for section, kind in _SECTIONS.items():
        for key, known in kind.model_fields.items():
            # AWS settings default to None in the shared section, to tell which were given.
            of_aws = AwsSettings.model_fields[key] if section == "cloud" and key in AWS_ONLY else None
            default = (of_aws or known).get_default(call_default_factory=True)
            said = "" if default is None else json.dumps(default)
            rows.append((section, key, said, known.description or ""))
    return rows


def load_aws_settings(path: Path, **flags: Any) -> AwsSettings:
    """Return the AWS settings of one file, overridden by the flags that are not None.

    A missing file means defaults, and a file without a provider means AWS.

    Raises:
        InputError: when the file cannot be read, a setting is unknown or wrong, or the provider is another.
    """
    document = (
        read_document(path, otherwise="toml") if path.exists() else Document(name=str(path), content={})
    )
    cloud = checked(Settings, document.content, document=document).cloud
    if "provider" in cloud.model_fields_set and not cloud_kind(cloud.provider).on_aws:
        problem = f'[cloud] provider is {cloud.provider!r}, and this verb is about "aws"'
        raise document.error(problem, at=("cloud", "provider"), hint='Set provider = "aws" under [cloud]')
    words = {name: value for name, value in flags.items() if value is not None}
    further = words.pop("region") if words.get("region") in (getattr(cloud, "regions", None) or ()) else None
    checked(AwsSettings, words, document=Document(name="the flags", content=words))
    given = {
        name: getattr(cloud, name) for name in AwsSettings.model_fields if name in cloud.model_fields_set
    }
    found = checked(AwsSettings, given | words, document=document, at=("cloud",))
    # A region of the list has settings of its own beside those of the home region.
    return found if further is None else found.in_region(further)
