"""Plug-ins of other packages are found by name; an error names a broken one."""

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
    """Register one working and one broken plug-in, and clear the cache afterwards."""
    monkeypatch.setattr(plugins, "_found", lambda _group: ENTRIES)
    load.cache_clear()
    yield
    load.cache_clear()


def test_entries_are_loaded_by_name() -> None:
    """Names are sorted; a name that no package adds gives None."""
    assert names("boa.policies") == ("broken", "good")
    assert load("boa.policies", "good") == pytest.approx(6.283185307)
    assert load("boa.policies", "other") is None


def test_an_error_names_a_plugin_that_cannot_be_imported() -> None:
    """The message has the entry point and the original error."""
    with pytest.raises(
        BrokenPlugin, match=r"a package adds as no\.such\.module:thing, cannot be loaded: ModuleN"
    ):
        load("boa.policies", "broken")


def test_a_plugin_that_is_no_policy_entry_is_refused() -> None:
    """BOA's own policies come first; a typo gets the closest of all names, plug-ins included."""
    assert find_policy("boa") is POLICIES["boa"]
    with pytest.raises(BrokenPlugin, match="policy 'good' of a plug-in is no PolicyEntry but float"):
        find_policy("good")
    with pytest.raises(UnknownPolicy, match="Did you mean 'good'"):
        find_policy("goood")
