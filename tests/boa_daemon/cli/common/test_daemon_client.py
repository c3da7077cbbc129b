"""Ages, instants and dollars as the verbs print them."""

from __future__ import annotations

import pytest

from boa_daemon.cli.common.daemon_client import age, clock_time, say_as_of, say_next, usd


@pytest.mark.parametrize(
    ("instant", "said"), [(None, ""), (1000.0, "0 s"), (940.0, "1.0 min"), (5000.0, "0 s")]
)
def test_the_age_of_an_instant_is_never_negative(instant: float | None, said: str) -> None:
    """Clocks differ a little."""
    assert age(instant, 1000.0) == said


def test_an_answer_says_of_when_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """In UTC; next commands are printed as they are typed."""
    assert clock_time(1_800_000_000.0) == "2027-01-15 08:00:00 UTC"
    say_as_of({"as_of": 1_800_000_000.0})
    say_next("boa jobs", "boa cost --by [x]")
    printed = capsys.readouterr().out
    assert "as of 2027-01-15 08:00:00 UTC" in printed
    assert "next:\n  boa jobs\n  boa cost --by [x]\n" in printed


@pytest.mark.parametrize(("amount", "said"), [(2.5, "$2.50"), (0.0, "$0.00"), (1234.5, "$1,234.50")])
def test_dollars_have_their_sign(amount: float, said: str) -> None:
    """And groups of digits."""
    assert usd(amount) == said
