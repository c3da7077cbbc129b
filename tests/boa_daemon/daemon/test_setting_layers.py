"""Which word counts where several layers say something, and what one layer may not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.setting_layers import load_settings
from boa_daemon.errors import InputError


def test_two_budgets_in_one_file_are_refused(tmp_path: Path) -> None:
    """The sentence names both keys and says what to do."""
    file = tmp_path / "boa.toml"
    file.write_text("[budget]\nusd_per_hour = 10.0\nusd_per_month = 7300.0\n")

    with pytest.raises(InputError, match="budget has both usd_per_hour and usd_per_month") as refused:
        load_settings(file, environment={})
    assert "Give one of them" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("in_file", "in_environment", "usd_per_hour"),
    [("usd_per_hour = 40.0", ("MONTH", "7300"), 10.0), ("usd_per_month = 7300.0", ("HOUR", "40"), 40.0)],
)
def test_the_stronger_word_replaces_the_other_budget(
    tmp_path: Path, in_file: str, in_environment: tuple[str, str], usd_per_hour: float
) -> None:
    """A file says one budget and the environment the other: the environment wins."""
    file = tmp_path / "boa.toml"
    file.write_text(f"[budget]\n{in_file}\n")
    name, value = in_environment
    loaded = load_settings(file, environment={f"BOA_BUDGET_USD_PER_{name}": value})

    assert loaded.settings.budget.mean_usd_per_hour == usd_per_hour
