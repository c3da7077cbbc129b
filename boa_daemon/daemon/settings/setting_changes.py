"""What a change of settings would loosen: caps, rights, users, and values that would give way to defaults.

A settings file may be cut short by an editor or a full disk, emptied, renamed, or on a mount that is gone.
A daemon that then continued with defaults would spend without the caps that somebody had set. So a change
needs consent where it loosens a limit, and where a value that had been set would be replaced by a default.
Every setting says in its declaration whether it limits something, and which way is looser: `Limit` or `Free`
in `boa_daemon/inputs/schema.py`.
"""

from __future__ import annotations

import collections.abc
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, get_args, get_origin

from pydantic.fields import FieldInfo

from boa_daemon.backends.settings import AwsSettings
from boa_daemon.daemon.settings.config import AWS_ONLY, Settings
from boa_daemon.inputs.schema import Limit, NoLimit, Private, Strict
from policies import plugins
from policies.errors import BrokenPlugin

SettingPath: TypeAlias = tuple[str, ...]
"""Section and key; of rows, such as users, section, name and key; of secrets section and pattern."""
Content: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Settings as a document: values by section and key."""
ACCEPT: SettingPath = ("daemon", "accept_changes")
"""The key of a settings file that consents to changes, by their code."""
_BUDGETS = frozenset({("budget", "usd_per_hour"), ("budget", "usd_per_month")})
_SECRETS = "secrets"
_MEMBERS = "members"
_PLUGINS = "plugins"
_SIDE_PRICES, _SPOT_LIMITS = "side_prices", "spot_max_usd_per_hour"
_NOT_AWS = ("simulated", "local", "slurm")
_OF_AWS = frozenset((key,) for key in AWS_ONLY)
_COST_FILES = ("prices", "commitments", "blocks", "classes")
"""Keys that name a file; what follows in a path is a name in the file."""
_CODE_LETTERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting that changes; `why` says why this needs consent, and is empty when it does not."""

    path: SettingPath
    before: Any
    after: Any
    why: str = ""

    @property
    def name(self) -> str:
        """The setting as people write it: ``[budget] usd_per_day_cap``, ``[users.ann] max_jobs``."""
        *section, key = self.path
        if self.path[0] == _SECRETS:
            return f'[secrets] "{key}"'
        if len(section) > 1 and section[-1] in _COST_FILES:
            return f"[{'.'.join(section[:-1])}] {section[-1]}, {key}"
        return f"[{'.'.join(section)}] {key}"

    @property
    def sentence(self) -> str:
        """The change in one line: name, old and new value, and why it needs consent."""
        line = f"{self.name}: {shown(self.path, self.before)} -> {shown(self.path, self.after)}"
        return f"{line} ({self.why})" if self.why else line

    def to_document(self) -> dict[str, Any]:
        """Return the change as JSON; private values are not in it."""
        hides = is_private(self.path)
        return {
            "setting": self.name,
            "before": shown(self.path, self.before) if hides else self.before,
            "after": shown(self.path, self.after) if hides else self.after,
            "needs_consent": bool(self.why),
            "why": self.why,
        }


def changes_between(
    before: Content, after: Content, *, given_before: Content, given_after: Content
) -> list[SettingChange]:
    """Return every setting that changes, in the order of the reference page.

    `before` and `after` are complete documents of settings, with defaults; `given_...` hold only what files
    and environment give.
    """
    old, new = dict(_flat(before)), dict(_flat(after))
    was_given, is_given = dict(_flat(given_before)), dict(_flat(given_after))
    found = []
    for path in dict.fromkeys((*old, *new)):
        if path == ACCEPT:
            continue
        was, will = old.get(path, _default(path)), new.get(path, _default(path))
        if was == will and (path[0] != _SECRETS or (path in old) == (path in new)):
            continue
        why = _loosening(path, was, will, before, after)
        if (
            not why
            and path in was_given
            and path not in is_given
            and not (path in _BUDGETS and _BUDGETS & is_given.keys())
        ):
            why = "it was set, and the default would take its place"
        found.append(SettingChange(path=path, before=was, after=will, why=why))
    return found


def code_of(given: Content, costs: Mapping[SettingPath, Any] | None = None) -> str:
    """Return the code by which a file or a command consents to exactly these settings.

    `costs` is what the files say that the settings name.
    """
    bare = {path: value for path, value in _flat(given) if path != ACCEPT} | dict(costs or {})
    text = json.dumps(sorted((".".join(path), value) for path, value in bare.items()), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_CODE_LETTERS]


def refusal(changes: Sequence[SettingChange], code: str) -> str:
    """Return the sentences that refuse changes, with what to do to have them."""
    loosening = [change.sentence for change in changes if change.why]
    return (
        f"the new settings would loosen limits: {'; '.join(loosening)}. If that is meant, run "
        f'`boa config apply --yes`, or write accept_changes = "{code}" under [daemon]; `boa config diff` '
        "shows all changes"
    )


def is_private(path: SettingPath) -> bool:
    """Whether the value of a setting may hold a password."""
    field = _field(path)
    if path[0] == _PLUGINS:
        return True  # Nobody knows what a plug-in keeps there.
    return field is not None and any(isinstance(mark, Private) for mark in field.metadata)


def shown(path: SettingPath, value: Any) -> str:
    """Return a value for people; a private one is not quoted."""
    if value is None:
        return "not set"
    if is_private(path):
        return "(not shown)" if value else json.dumps(value)
    return json.dumps(value, default=str)


def _flat(content: Content) -> Iterator[tuple[SettingPath, Any]]:
    """Yield path and value of every setting of a document; rows and tables within sections are entered."""
    for section, table in content.items():
        for key, value in table.items():
            if section == _PLUGINS and isinstance(value, Mapping):
                yield from (((section, key, inner), each) for inner, each in value.items())
            else:
                yield from _entered((section, key), value, _kind(Settings, (section, key)))


def _entered(path: SettingPath, value: Any, kind: Any) -> Iterator[tuple[SettingPath, Any]]:
    """Yield the settings within a value whose annotation is, or whose rows are, a model; else the value."""
    model, is_row = _model_in(kind)
    if model is None or not isinstance(value, Mapping):
        yield path, value
    elif is_row:
        for key, each in value.items():
            yield from _entered((*path, key), each, model)
    else:
        for key, each in value.items():
            field = model.model_fields.get(key)
            yield from _entered((*path, key), each, None if field is None else field.annotation)


def _model_in(kind: Any) -> tuple[type[Strict] | None, bool]:
    """Return the model that an annotation holds, and whether in rows by name; None if it holds none."""
    if isinstance(kind, type) and issubclass(kind, Strict):
        return kind, False
    is_row = get_origin(kind) in (dict, Mapping, collections.abc.Mapping)
    for part in get_args(kind):
        model, in_rows = _model_in(part)
        if model is not None:
            return model, is_row or in_rows
    return None, False


def _kind(model: type[Strict], path: SettingPath) -> Any:
    """Return what stands at a path: an annotation, or the model of a row; None where nothing is known."""
    kind: Any = model
    for key in path:
        inner, is_row = _model_in(kind)
        if inner is None:
            return None
        if is_row:
            kind = inner
            continue
        field = inner.model_fields.get(key)
        kind = None if field is None else field.annotation
    return kind


def _field(path: SettingPath) -> FieldInfo | None:
    """Return the field of a setting; None for a secret's pattern, and for keys of other versions."""
    model, is_row = _model_in(_kind(Settings, path[:-1]))
    return None if model is None or is_row else model.model_fields.get(path[-1])


def _default(path: SettingPath) -> Any:
    """Return the default of a setting."""
    field = _field(path)
    if field is None or field.is_required():
        return None
    return field.get_default(call_default_factory=True)


def _loosening(path: SettingPath, was: Any, will: Any, before: Content, after: Content) -> str:
    """Return why a change of a setting loosens a limit; empty when it does not."""
    if path[0] == _SECRETS:
        return _secret_loosening(path[-1], before.get(_SECRETS, {}), after.get(_SECRETS, {}))
    field = _field(path)
    if path[0] == _PLUGINS:
        field = _plugin_field(path)
        if field is None:
            return "" if was is None else _UNSTATED
    if field is None:
        return ""  # A key of another version.
    if path[0] == "teams" and path[-1] == _MEMBERS and set(will or ()) - set(was or ()):
        secrets = [
            pattern for pattern, owners in after.get(_SECRETS, {}).items() if f"team:{path[1]}" in owners
        ]
        if secrets:
            return f"who is added may name the secrets {', '.join(secrets)}"
    if path[0] == "cloud":
        was, will = _in_use(path, was, before), _in_use(path, will, after)
        if path[1] == _SPOT_LIMITS:
            was = _with_list_prices(was, will)
    if any(isinstance(mark, NoLimit) for mark in field.metadata):
        return ""
    limit = next((mark for mark in field.metadata if isinstance(mark, Limit)), None)
    if limit is None:
        return _UNSTATED if was is not None else ""
    by, why = limit.loosened_by, limit.why
    if by in ("up", "down"):
        found = _number_loosening(was, will, is_up=by == "up")
        return found and (why or found)
    is_elsewhere = before.get("cloud", {}).get("provider") in _NOT_AWS
    if is_elsewhere and path[0] == "cloud" and (path[1:2] in _OF_AWS or path[1] == "region"):
        return ""  # Without nodes on AWS these have let nobody in, and no node would be left behind.
    if by == "more":
        is_looser = bool(_items(will) - _items(was))
    elif by == "fewer":
        is_looser = bool(_items(was) - _items(will))
    elif by in ("true", "false"):
        is_looser = will is (by == "true")
    else:
        is_looser = was != will and (by == "other" or was != _default(path))
    return (why or _WHY[by]) if is_looser else ""


_UNSTATED = "it does not state whether it limits something"
_WHY = {
    "more": "it grants more",
    "fewer": "who is left out is limited no more",
    "true": "it grants more",
    "false": "it grants more",
    "other": "other people could be let in",
    "replaced": "what was set would hold no more",
}
"""By direction: what loosens a limit that does not say so itself."""


def _in_use(path: SettingPath, value: Any, content: Content) -> Any:
    """Return what a setting of a cloud comes to: where it is unset, what the cloud takes in its place."""
    if value is not None:
        return value
    if path[1:] in _OF_AWS:
        # The section says None for what is not given, and AWS has a default of its own.
        return _of_aws(path[1])
    cloud = content.get("cloud", {})
    if _SIDE_PRICES in path[1:-1] and cloud.get("provider") == "aws":
        from boa_daemon.backends.aws.prices.side_prices import shipped_price  # noqa: PLC0415 - slow to import

        region = path[2] if path[1] == "by_region" else cloud.get("region")
        return shipped_price(str(region), path[-1])
    return value


def _with_list_prices(limits: Mapping[str, float], names: Mapping[str, float]) -> dict[str, float]:
    """Return the highest spot prices in use: types without one are rented for at most the list price."""
    if names.keys() <= limits.keys():
        return dict(limits)
    from boa_daemon.inputs.catalog import Catalog  # noqa: PLC0415 - slow to import

    entries = Catalog.load().entries
    # A price that nobody here knows may be below any limit.
    listed = {name: (entries[name].usd_per_hour or 0.0) if name in entries else 0.0 for name in names}
    return {**listed, **limits}


def _plugin_field(path: SettingPath) -> FieldInfo | None:
    """Return the field of a plug-in's own setting; None where the plug-in states none."""
    _, name, key, *_ = (*path, "")
    for group in plugins.GROUPS:
        if name in plugins.names(group):
            with suppress(BrokenPlugin):
                model = getattr(plugins.load(group, name), "Settings", None)
                return (
                    model.model_fields.get(key)
                    if isinstance(model, type) and issubclass(model, Strict)
                    else None
                )
    return None


def _items(value: Any) -> set[Any]:
    """Return the items of a list, or of a table."""
    return set(value.items() if isinstance(value, Mapping) else value or ())


def _of_aws(key: str) -> Any:
    """Return the default of a key that only AWS has."""
    return AwsSettings.model_fields[key].get_default(call_default_factory=True)


def _number_loosening(was: Any, will: Any, *, is_up: bool) -> str:
    """Return why a change of a number, or of a table of numbers, loosens a limit."""
    if isinstance(was, Mapping) or isinstance(will, Mapping):
        pairs = [((was or {}).get(key), (will or {}).get(key)) for key in {**(was or {}), **(will or {})}]
    else:
        pairs = [(was, will)]
    for old, new in pairs:
        if old == new or old is None:
            continue
        if new is None:
            return "it lifts a limit"
        if (new > old) is is_up:
            return "it loosens a limit" if is_up else "less would count against the caps"
    return ""


def _secret_loosening(pattern: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return why a change of one pattern lets somebody name a secret who could not before."""
    was, will = _owners(pattern, before), _owners(pattern, after)
    if was is None:
        return ""
    if will is None:
        return "anybody could name these secrets"
    return "it grants more" if set(will) - set(was) else ""


def _owners(pattern: str, rights: Mapping[str, Any]) -> Sequence[str] | None:
    """Return who may name what a pattern stands for, by the longest pattern that covers it; None: anybody."""
    covering = [each for each in rights if each == pattern or fnmatchcase(pattern, each)]
    return rights[max(covering, key=len)] if covering else None
