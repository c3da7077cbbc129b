"""Advice on commitments from stated classes: in dollars, for machines that an offer covers."""

from __future__ import annotations

from typing import Any

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.problem_file import ProblemFile, parse_problem
from boa_daemon.planning.commitment_advice import AdviceRequest
from policies.model import Budget

OFFER = {"name": "year", "kind": "family", "family": "p4d", "discount": 0.4}


def a_file(*, priced: bool = True) -> ProblemFile:
    """Return classes that need a hundred A100s on average."""
    curve = {"table": {"1": 1.0, "8": 5.5}}
    phases = [{"size_gpu_hours": 2.0, "speedup": {"a100": curve} if priced else curve}]
    content: dict[str, Any] = {"classes": [{"name": "c", "arrivals_per_hour": 40.0, "phases": phases}]}
    if priced:
        content["gpu_types"] = {"a100": {"instance_type": "p4d.24xlarge"}}
    return parse_problem(Document(name="p.yaml", content=content, language="json"))


def a_request(*offers: dict[str, Any], **changes: Any) -> AdviceRequest:
    """Return a request about some offers."""
    content = {"as_of": "2026-11-01", "source": "us", "offers": list(offers)}
    return AdviceRequest(offers=Document(name="o.toml", content=content, language="json"), **changes)


def test_the_advice_names_what_to_commit_to_and_of_when_the_offers_are() -> None:
    """The load is known within the spread; without a trace no policy ran."""
    found = a_request(OFFER).from_classes(a_file(), Budget(amount=500.0))
    document = found.to_document()
    assert (document["offers_as_of"], document["offers_source"], document["policy"]) == (
        "2026-11-01",
        "us",
        None,
    )
    assert document["proof"] == []
    (advice,) = found.advice
    assert advice.term_years == 1
    assert all(row["term_years"] == 1 and row["gpu_types"] == "a100" for row in found.rows())
    sure = a_request(OFFER, spread=0.0).from_classes(a_file(), Budget(amount=500.0))
    assert sure.advice[0].low.saved_fraction == pytest.approx(sure.advice[0].high.saved_fraction)
    assert (advice.low.factor, advice.likely.factor, advice.high.factor) == (0.75, 1.0, 1.25)
    assert found.rows()


@pytest.mark.parametrize(
    ("priced", "unit", "offers", "said"),
    [
        (False, "gpus", [OFFER], "commitments are paid in dollars. Give gpu_types prices"),
        (True, "gpus", [OFFER], "commitments are paid in dollars. Give a budget such as 40/h"),
        (True, "usd_per_hour", [{**OFFER, "family": "g5"}], r"no offer covers p4d\.24xlarge \(a100\)"),
    ],
)
def test_what_no_offer_pays_for_is_refused(
    priced: bool, unit: Any, offers: list[dict[str, Any]], said: str
) -> None:
    """The error says what to give."""
    with pytest.raises(InputError, match=said):
        a_request(*offers).from_classes(a_file(priced=priced), Budget(amount=500.0, unit=unit))


def test_a_file_without_offers_is_none() -> None:
    """Commitments alone are what is paid already."""
    paid = {"commitments": [{**OFFER, "usd_per_hour": 4.0}]}
    request = AdviceRequest(offers=Document(name="o.toml", content=paid, language="json"))
    with pytest.raises(InputError, match="offers"):
        request.from_classes(a_file(), Budget(amount=500.0))
