"""What other packages add: found by name, and named where it is broken."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint

import pytest

from policies import plugins
from policies.errors import BrokenPlugin, UnknownPolicy
from policies.plugins import load, names
from policies.registry import POLICIES, find_policy

ENTRIES = {
    "good": EntryPoint("good", "math:tau", "boa.policies"),
    "broken": EntryPoint("broken", "no.such.module:thing", "boa.policies"),
}


@pytest.fixture(autouse=True)
def _entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let two packages add something, and forget it afterwards."""
    monkeypatch.setattr(plugins, "_found", lambda _group: ENTRIES)
    load.cache_clear()
    yield
    load.cache_clear()


def test_entries_are_loaded_by_name() -> None:
    """Names are sorted; a name that no package adds gives None."""
    assert names("boa.policies") == ("broken", "good")
    assert load("boa.policies", "good") == pytest.approx(6.283185307)
    assert load("boa.policies", "other") is None


def test_a_package_that_cannot_be_imported_is_named() -> None:
    """The error has the entry, the original error, and what to do."""
    with pytest.raises(
        BrokenPlugin, match=r"a package adds as no\.such\.module:thing, cannot be loaded: ModuleN"
    ):
        load("boa.policies", "broken")


def test_a_policy_of_a_package_is_an_entry_or_refused() -> None:
    """BOA's own come first; another object is none; a typo is told the closest name of all."""
    assert find_policy("boa") is POLICIES["boa"]
    with pytest.raises(BrokenPlugin, match="policy 'good' of a plug-in is no PolicyEntry but float"):
        find_policy("good")
    with pytest.raises(UnknownPolicy, match="Did you mean 'good'"):
        find_policy("goood")
