"""Changes of settings: which of them loosen a limit, and so need consent."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from pydantic.fields import FieldInfo

from boa_daemon.backends.settings import AwsSettings, SidePrices
from boa_daemon.daemon.settings import setting_changes
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.setting_changes import SettingChange, changes_between, code_of
from boa_daemon.inputs.schema import Free, Limit, NoLimit, Positive, Strict

PARTITION: dict[str, Any] = {"gpu": "a100", "gpus": 4, "usd_per_hour": 2.0, "nodes": 2}
SIDE_PRICES: dict[str, Any] = {
    name: "2026-11-01" if name == "as_of" else 0.1
    for name, field in SidePrices.model_fields.items()
    if field.is_required()
}
BASE: dict[str, dict[str, Any]] = {
    "budget": {
        "usd_per_hour": 5.0,
        "usd_per_day_cap": 200.0,
        "standing_usd_per_hour": 0.5,
        "max_instances": 4,
    },
    "cloud": {
        "lease_minutes": 30.0,
        "spot_max_usd_per_hour": {"g5.xlarge": 0.5},
        "partitions": {"gpu": PARTITION},
        "side_prices": SIDE_PRICES,
        "provider": "aws",
        "regions": ["us-east-1", "eu-west-1"],
    },
    "engine": {"secrets": ["ssm:/a/*"], "own_user": True},
    "api": {"admins": ["ann"]},
    "alerts": {"webhook": "https://hooks.example/T0/secret", "apprise": ["mailto://ann"]},
    "users": {"bob": {"max_jobs": 3, "usd_per_day_cap": 20.0, "notify": ["end", "failure"]}},
    "teams": {
        "vision": {"members": ["bob", "eve"], "usd_per_day_cap": 50.0, "share": 2.0},
        "lab": {"members": ["ann"]},
    },
    "secrets": {"env:A*": ["ann"], "env:T": ["team:lab"]},
    "slurm": {"teams": {"ml": "vision", "hep": "lab"}},
}


def changed(section: str, key: str, value: Any, *, drop: bool = False) -> list[SettingChange]:
    """Return the changes when one value of the base changes, or is left out."""
    after = {name: dict(table) for name, table in BASE.items()}
    after.setdefault(section, {})[key] = value
    if drop:
        del after[section][key]
    return between(BASE, after)


def between(before: dict[str, Any], after: dict[str, Any]) -> list[SettingChange]:
    """Return the changes between two contents of settings files."""
    old, new = (Settings.model_validate(content).model_dump(mode="json") for content in (before, after))
    return changes_between(old, new, given_before=before, given_after=after)


TEAM = {"members": ["bob", "eve"], "usd_per_day_cap": 50.0, "share": 2.0}
LOOSER: list[tuple[str, str, Any]] = [
    ("budget", "usd_per_day_cap", 200.01),
    ("budget", "standing_usd_per_hour", 0.4),
    ("budget", "max_instances", 5),
    ("cloud", "lease_minutes", 31.0),
    ("cloud", "spot_max_usd_per_hour", {"g5.xlarge": 0.6}),
    ("cloud", "spot_max_usd_per_hour", {}),
    ("engine", "secrets", ["ssm:/a/*", "ssm:/b"]),
    ("engine", "own_user", False),
    ("engine", "shared_account", True),
    ("engine", "data", ["s3://b/*"]),
    ("api", "admins", ["ann", "eve"]),
    ("api", "readers", ["eve"]),
    ("api", "proxies", ["127.0.0.1"]),
    ("api", "proxy_user_header", "X-Auth-Request-Email"),
    ("api", "proxy_user_domain", "other.example"),
    ("users", "bob", {"max_jobs": 4, "usd_per_day_cap": 20.0}),
    ("users", "bob", {"max_jobs": 3}),
    ("teams", "vision", {**TEAM, "usd_per_day_cap": 51.0}),
    ("teams", "vision", {**TEAM, "members": ["bob"]}),
    ("secrets", "env:A*", ["ann", "eve"]),
    ("secrets", "env:AB*", ["eve"]),
    # Limits in tables and rows within a section.
    ("cloud", "partitions", {"gpu": {**PARTITION, "nodes": 3}}),
    ("cloud", "partitions", {"gpu": {**PARTITION, "usd_per_hour": 1.0}}),
    ("cloud", "partitions", {"gpu": {"gpu": "a100", "gpus": 4, "usd_per_hour": 2.0}}),
    ("cloud", "side_prices", {**SIDE_PRICES, "nat_usd_per_gb": 0.01}),
    # An account of Slurm without its team, or with another, is limited by that team no more.
    ("slurm", "teams", {"ml": "vision"}),
    ("slurm", "teams", {"ml": "lab", "hep": "lab"}),
    # What counts against the caps comes from elsewhere.
    ("cloud", "prices", "cheap.toml"),
    ("cloud", "commitments", "held.yaml"),
    ("cloud", "blocks", "blocks.yaml"),
    ("cloud", "by_region", {"eu-west-1": {"prices": "cheap.toml"}}),
    ("cloud", "spot_max_usd_per_hour", {"g5.xlarge": 0.5, "g4dn.xlarge": 0.6}),
    ("cloud", "spot_max_usd_per_hour", {"g5.xlarge": 0.5, "g99.xlarge": 0.1}),
    # Nodes that run would be left behind.
    ("cloud", "provider", "local"),
    ("cloud", "region", "eu-west-2"),
    ("cloud", "regions", ["us-east-1"]),
    ("cloud", "cluster", "boa2"),
    ("cloud", "endpoint", "http://127.0.0.1:1"),
    # Others get in, or jobs get more rights.
    ("cloud", "key_name", "bobs"),
    ("cloud", "security_groups", ["sg-1"]),
    ("cloud", "instance_profile", "admin"),
    ("engine", "secrets_file", "/etc/more"),
    ("api", "listen", "0.0.0.0:7410"),
    ("api", "tokens", "/tmp/tokens"),
    ("api", "hosts", ["evil.example"]),
    ("daemon", "observe", True),
    # Limits against flapping.
    ("steady", "loop_times", 9),
    ("steady", "moves_per_hour", 201),
    ("steady", "moves_per_hour_of_a_job", 5),
    ("steady", "minimum_hold_seconds", 299.0),
    # Who was told is told no more.
    ("alerts", "webhook", "https://hooks.example/T0/other"),
    ("alerts", "apprise", []),
    ("alerts", "at_fractions", [0.9, 1.0]),
    ("alerts", "month_report", False),
    ("users", "bob", {"max_jobs": 3, "usd_per_day_cap": 20.0, "notify": ["end"]}),
    ("teams", "vision", {**TEAM, "share": 3.0}),
    # Who joins a team that owns secrets may name them.
    ("teams", "lab", {"members": ["ann", "eve"]}),
]
TIGHTER: list[tuple[str, str, Any]] = [
    ("budget", "usd_per_hour", 9.0),
    ("budget", "usd_per_day_cap", 199.0),
    ("budget", "usd_per_month_cap", 900.0),
    ("budget", "max_instances", 1),
    ("budget", "standing_usd_per_hour", 0.6),
    ("cloud", "lease_minutes", 29.0),
    ("cloud", "spot_max_usd_per_hour", {"g5.xlarge": 0.4, "g4dn.xlarge": 0.2}),
    ("engine", "secrets", []),
    ("api", "admins", []),
    ("users", "eve", {"max_jobs": 1}),
    ("teams", "vision", {**TEAM, "members": ["bob", "eve", "dan"]}),
    ("secrets", "env:A*", []),
    ("secrets", "ssm:/x", ["ann"]),
    ("daemon", "tick_seconds", 5.0),
    ("alerts", "apprise", ["mailto://ann", "mailto://bob"]),
    ("alerts", "sns_topic", "arn:aws:sns:us-east-1:123456789012:boa"),
    ("users", "eve", {"notify": ["end"]}),
    ("teams", "bio", {"members": ["dan"], "share": 1.0}),
    ("steady", "minimum_hold_seconds", 301.0),
    ("steady", "loop_times", 7),
    ("cloud", "regions", ["us-east-1", "eu-west-1", "eu-west-2"]),
    ("cloud", "market", "spot"),
    ("cloud", "partitions", {"gpu": {**PARTITION, "nodes": 1}}),
    ("cloud", "partitions", {"gpu": PARTITION, "cpu": PARTITION}),
    ("cloud", "side_prices", {**SIDE_PRICES, "nat_usd_per_gb": 0.2}),
    ("slurm", "teams", {"ml": "vision", "hep": "lab", "bio": "lab"}),
]


@pytest.mark.parametrize(("section", "key", "value"), LOOSER)
def test_a_change_that_loosens_a_limit_needs_consent(section: str, key: str, value: Any) -> None:
    """Caps, rights, users, costs that count against caps, and rights to secrets."""
    assert [change for change in changed(section, key, value) if change.why]


@pytest.mark.parametrize(("section", "key", "value"), TIGHTER)
def test_a_change_that_tightens_or_is_no_limit_needs_none(section: str, key: str, value: Any) -> None:
    """A lower cap, a new limit, fewer rights, another budget or tick."""
    found = changed(section, key, value)
    assert found
    assert not [change.sentence for change in found if change.why]


@pytest.mark.parametrize(("section", "key"), [(name, key) for name, table in BASE.items() for key in table])
def test_what_is_left_out_needs_consent(section: str, key: str) -> None:
    """Each value that was set, left out: nothing gives way to a default unasked."""
    found = changed(section, key, None, drop=True)
    assert any(change.why for change in found) or not found
    # The one value that equals its default changes nothing.
    assert found or (section, key) == ("engine", "own_user")


def fields(kind: Any, seen: set[Any]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield every setting below a section's or row's model, by name."""
    model, _ = setting_changes._model_in(kind)
    if model is None or model in seen:
        return
    seen.add(model)
    for key, field in model.model_fields.items():
        if setting_changes._model_in(field.annotation)[0] is None:
            yield f"{model.__name__}.{key}", field
        else:
            yield from fields(field.annotation, seen)


UNSTATED = {"Settings.secrets", "Settings.plugins"}
"""Tables without models: patterns of secrets have a rule of their own, plug-ins state it themselves."""


def test_every_setting_states_whether_it_limits() -> None:
    """A new setting says which way is looser, or that it is free; a list elsewhere would forget it."""
    found = dict(fields(Settings, set())) | dict(fields(AwsSettings, set()))
    assert len(found) > 150
    stated = {
        name
        for name, field in found.items()
        if sum(isinstance(mark, Limit | NoLimit) for mark in field.metadata) == 1
    }
    assert found.keys() - stated == UNSTATED


class _PluginSettings(Strict):
    usd_per_hour: Annotated[float, Limit("down")] = 1.0
    color: Free[str] = ""
    size: Positive = 1.0


@pytest.mark.parametrize(
    ("key", "before", "after", "needs_consent"),
    [
        ("usd_per_hour", 1.0, 0.5, True),
        ("usd_per_hour", 1.0, 2.0, False),
        ("color", "red", "blue", False),
        ("size", 1.0, 2.0, True),
        ("unknown", 1.0, 2.0, True),
    ],
)
def test_a_plugin_states_what_limits(
    monkeypatch: pytest.MonkeyPatch, key: str, before: Any, after: Any, needs_consent: bool
) -> None:
    """By its own model; what it does not state may be a limit."""
    plugin = SimpleNamespace(Settings=_PluginSettings)
    monkeypatch.setattr(setting_changes.plugins, "names", lambda _: ("shelf",))
    monkeypatch.setattr(setting_changes.plugins, "load", lambda *_: plugin)
    old, new = ({"plugins": {"shelf": {key: value}}} for value in (before, after))
    (found,) = changes_between(old, new, given_before=old, given_after=new)
    assert bool(found.why) is needs_consent


def test_side_prices_below_those_of_the_catalogue_need_consent() -> None:
    """Prices that nobody had written down are the catalogue's, and lower ones let more be spent."""
    for price, needs_consent in ((0.044, True), (0.046, False)):
        sides = {**SIDE_PRICES, **{key: 9.0 for key in SIDE_PRICES if "usd" in key}, "nat_usd_per_gb": price}
        cloud = {"provider": "aws"}
        found = between({"cloud": cloud}, {"cloud": {**cloud, "side_prices": sides}})
        assert any(one.why for one in found) is needs_consent


@pytest.mark.parametrize(("key", "value"), [("lease_minutes", 91.0), ("lease_minutes", 1440.0)])
def test_a_key_of_aws_that_was_unset_has_its_default(key: str, value: float) -> None:
    """A lease of 90 minutes that nobody wrote down is a limit as well."""
    found = between({"cloud": {}}, {"cloud": {key: value}})
    assert [change.name for change in found if change.why] == [f"[cloud] {key}"]


def test_a_site_that_moves_from_a_simulated_cloud_to_aws_is_asked_for_nothing() -> None:
    """What AWS alone reads has let nobody in before; the way back leaves nodes behind."""
    aws = {"provider": "aws", "instance_profile": "boa", "security_groups": ["sg-1"], "key_name": "ann"}
    there = between({"cloud": {}}, {"cloud": {**aws, "region": "eu-central-1"}})
    assert [one.sentence for one in there if one.why] == []
    back = between({"cloud": aws}, {"cloud": {**aws, "provider": "local"}})
    assert [one.name for one in back if one.why] == ["[cloud] provider"]


CHEAPER = {**SIDE_PRICES, "address_usd_per_hour": 0.001}


@pytest.mark.parametrize(
    ("before", "after", "needs_consent"),
    [
        ({}, {"eu-west-1": {"side_prices": SIDE_PRICES}}, False),
        ({"eu-west-1": {}}, {"eu-west-1": {"side_prices": SIDE_PRICES}}, False),
        ({"eu-west-1": {"side_prices": SIDE_PRICES}}, {"eu-west-1": {"side_prices": CHEAPER}}, True),
        ({"eu-west-1": {"side_prices": SIDE_PRICES}}, {"eu-west-1": {}}, True),
        ({"eu-west-1": {"side_prices": SIDE_PRICES}}, {}, True),
        ({"eu-west-1": {"zones": ["eu-west-1a"]}}, {"eu-west-1": {"zones": ["eu-west-1b"]}}, False),
    ],
)
def test_prices_of_a_further_region_are_compared_with_its_own(
    before: dict[str, Any], after: dict[str, Any], needs_consent: bool
) -> None:
    """What a region leaves unset has no default among the keys of the section."""
    found = between({"cloud": {"by_region": before}}, {"cloud": {"by_region": after}})
    assert found != []
    assert any(one.why for one in found) is needs_consent


def test_a_row_within_a_section_is_named_as_its_table() -> None:
    """The table's header, as people write it, and the key."""
    found = changed("cloud", "partitions", {"gpu": {**PARTITION, "nodes": 3}})
    assert [change.sentence for change in found] == [
        "[cloud.partitions.gpu] nodes: 2 -> 3 (it loosens a limit)"
    ]


def test_a_cap_derived_from_the_budget_counts() -> None:
    """A higher monthly budget raises the daily cap that follows from it."""
    found = between({"budget": {"usd_per_month": 730.0}}, {"budget": {"usd_per_month": 1460.0}})
    assert [(change.name, change.before, change.after) for change in found if change.why] == [
        ("[budget] usd_per_day_cap", 48.0, 96.0)
    ]


def test_a_private_value_is_not_quoted() -> None:
    """The address of a webhook holds a secret."""
    (change,) = changed("alerts", "webhook", "https://hooks.example/T0/other")
    assert "T0" not in change.sentence + str(change.to_document())


def test_a_code_stands_for_exactly_these_settings() -> None:
    """Another value has another code, and the key with the code does not count."""
    code = code_of(BASE)
    assert code_of({**BASE, "daemon": {"accept_changes": code}}) == code
    assert code_of({**BASE, "budget": {**BASE["budget"], "max_instances": 5}}) != code
