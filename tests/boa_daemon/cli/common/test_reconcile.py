"""`boa cost --reconcile`: the ledger compared with Cost Explorer."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws
from moto.ce.models import ce_backends
from verbs import exit_code

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.server import ApiServer, unix_socket
from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.cost_explorer import SERVICES, NoCostData, compare_days, explorer_days
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder
from boa_daemon.tick.facts.limits import DAY_SECONDS
from boa_daemon.tick.facts.ports import Charge

Boa = Callable[..., tuple[int, str]]


def days_ago(number: int) -> date:
    """Return the day that many days before today."""
    return datetime.now(UTC).date() - timedelta(days=number)


@pytest.fixture
def bill(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Return the queue of answers of Cost Explorer."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield ce_backends["123456789012"]["aws"].cost_usage_results_queue


SERVICE = "Amazon Elastic Compute Cloud - Compute"


def page(
    *costs: tuple[date, float],
    unit: str = "USD",
    others: tuple[tuple[str, str, float], ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """Return an answer of Cost Explorer."""
    rows = [
        {
            "TimePeriod": {"Start": day.isoformat(), "End": (day + timedelta(days=1)).isoformat()},
            "Total": {},
            "Groups": [
                {"Keys": [service, usage], "Metrics": {"UnblendedCost": {"Amount": str(part), "Unit": unit}}}
                for service, usage, part in ((SERVICE, "EUW1-BoxUsage:g5.xlarge", usd), *others)
            ],
            "Estimated": True,
        }
        for day, usd in costs
    ]
    return {"ResultsByTime": rows, **more}


@pytest.fixture
def boa(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Boa]:
    """Return a function that runs the command against a daemon with 24 USD on each of four days."""
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        folder = Path(name)
        play = DaemonInAFolder(folder, ManualClock(datetime.now(UTC).timestamp()))
        first = (days_ago(4) - date(1970, 1, 1)).days
        charge = Charge(
            node="n1",
            instance_type="x",
            started_at=first * DAY_SECONDS,
            ended_at=(first + 4) * DAY_SECONDS,
            micro_dollars=96_000_000,
            days=tuple((first + number, 24_000_000) for number in range(4)),
        )
        play.storage.store.record_charge(charge)
        for hour in range(24):
            at = first * DAY_SECONDS + 3600.0 * hour
            play.storage.store.record_charge(
                Charge(
                    node=f"gateway {hour}",
                    instance_type="gateway",
                    started_at=at,
                    ended_at=at + 3600.0,
                    micro_dollars=45_000,
                    days=((first, 45_000),),
                )
            )
        gatekeeper = Authenticator(ApiSettings())
        server = ApiServer(create_app(play.service, gatekeeper), [unix_socket(folder / "boa.sock")])
        server.start()
        monkeypatch.chdir(folder)
        Path("boa.toml").write_text(
            '[cloud]\nprovider = "aws"\ncluster = "lab"\ninstance_types = ["g5.xlarge"]\n'
        )

        def run(*words: str) -> tuple[int, str]:
            socket = str(folder / "boa.sock")
            code = exit_code(monkeypatch, "cost", "--reconcile", "--socket", socket, *words)
            said = capsys.readouterr()
            return code, said.out + said.err

        yield run
        server.stop()
        play.close()


def test_final_days_within_the_tolerance_are_no_drift(boa: Boa, bill: list[dict[str, Any]]) -> None:
    """The exit code is 0, and each day shows its difference."""
    bill.append(page((days_ago(4), 24.0), (days_ago(3), 24.4), (days_ago(2), 23.6), (days_ago(1), 7.0)))
    code, said = boa("--days", "4", "--json")
    document = json.loads(said)
    assert code == 0
    assert document["drift"] == []
    by_day = {row["day"]: row for row in document["days"]}
    assert by_day[days_ago(3).isoformat()]["difference_usd"] == pytest.approx(0.4)
    assert by_day[days_ago(0).isoformat()]["cost_explorer_usd"] is None


def test_a_final_day_that_differs_is_drift(boa: Boa, bill: list[dict[str, Any]]) -> None:
    """The exit code is 6. Today and yesterday are not final and never drift."""
    bill.append(page((days_ago(4), 24.0), (days_ago(3), 31.0), (days_ago(2), 24.0), (days_ago(1), 0.0)))
    code, said = boa("--days", "4")
    assert code == 6
    assert f"Drift on {days_ago(3)}" in said
    assert said.count("not final") == 2
    assert "7.00" in said


def test_a_wider_tolerance_accepts_a_larger_difference(boa: Boa, bill: list[dict[str, Any]]) -> None:
    """Seven of 24 dollars are within 30 %."""
    bill.append(page((days_ago(4), 24.0), (days_ago(3), 31.0), (days_ago(2), 24.0)))
    assert boa("--days", "4", "--tolerance", "0.3")[0] == 0


def test_a_bill_of_only_zeros_hints_at_an_inactive_tag(boa: Boa, bill: list[dict[str, Any]]) -> None:
    """Cost Explorer returns zeros for a tag that is not activated, so the exit code is 1 and not 6."""
    bill.append(page(*((days_ago(number), 0.0) for number in range(5))))
    code, said = boa("--days", "4")
    assert code == 1
    assert "boa:cluster=lab" in said
    assert "cost allocation tag" in " ".join(said.split())


def test_an_empty_answer_exits_with_1(boa: Boa, bill: list[dict[str, Any]]) -> None:
    """It is not taken for a bill of zero."""
    bill.append({"ResultsByTime": []})
    assert boa("--days", "4")[0] == 1


def test_a_denied_call_names_the_operation_and_boa_iam(
    boa: Boa, bill: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is 1."""

    def denied(*_: Any, **__: Any) -> Any:
        said = {"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}
        raise ClientError(said, "GetCostAndUsage")

    monkeypatch.setattr("botocore.client.BaseClient._make_api_call", denied)
    code, said = boa("--days", "4")
    assert code == 1
    assert "ce:GetCostAndUsage" in said
    assert "boa iam" in said


def test_reconcile_is_refused_for_a_simulated_cloud(boa: Boa) -> None:
    """The exit code is 2."""
    Path("boa.toml").write_text('[cloud]\nprovider = "simulated"\n')
    code, said = boa()
    assert code == 2
    assert "simulated" in said


def test_cost_explorer_is_asked_for_whole_days_by_tag_and_service(
    bill: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages of the answer are read."""
    asked: list[dict[str, Any]] = []
    calls = AwsCalls(AwsSettings(cluster="lab", region="eu-west-1", instance_types=("g5.xlarge",)))
    answers = [page((days_ago(2), 1.0), NextPageToken="more"), page((days_ago(1), 2.0))]

    def call(operation: str, **arguments: Any) -> dict[str, Any]:
        asked.append({"operation": operation, **arguments})
        return answers[len(asked) - 1]

    monkeypatch.setattr(calls, "call", call)
    found = explorer_days(calls, "lab", days_ago(2), days_ago(1))
    assert found == {days_ago(2): {"compute": 1.0}, days_ago(1): {"compute": 2.0}}
    assert asked[0]["operation"] == "ce:GetCostAndUsage"
    assert asked[0]["TimePeriod"] == {"Start": days_ago(2).isoformat(), "End": days_ago(0).isoformat()}
    tags = [{"Tags": {"Key": key, "Values": ["lab"]}} for key in ("boa:cluster", "boa:stack", "boa:image")]
    assert {"Or": tags} in asked[0]["Filter"]["And"]
    assert {"Dimensions": {"Key": "SERVICE", "Values": list(SERVICES)}} in asked[0]["Filter"]["And"]
    assert asked[1]["NextPageToken"] == "more"


def test_costs_of_each_kind_are_compared_without_drift(boa: Boa, bill: list[dict[str, Any]]) -> None:
    """Each usage type belongs to one kind; a NAT gateway is no disk although its service is the same."""
    other, s3 = "EC2 - Other", "Amazon Simple Storage Service"
    others = (
        (other, "EUW1-EBS:VolumeUsage.gp3", 9.0),
        (other, "EUW1-EBS:SnapshotUsage", 0.2),
        (other, "EUW1-NatGateway-Hours", 1.1),
        (other, "EUW1-NatGateway-Bytes", 3.0),
        (other, "EUW1-DataTransfer-Regional-Bytes", 0.5),
        ("Amazon Virtual Private Cloud", "EUW1-PublicIPv4:InUseAddress", 0.12),
        ("Amazon Simple Queue Service", "EUW1-Requests-Tier1", 0.5),
        (s3, "EUW1-Requests-Tier1", 1.0),
        (s3, "EUW1-TimedStorage-ByteHrs", 2.0),
        (s3, "EUW1-SomethingNew", 0.3),
    )
    bill.append(page(*((days_ago(number), 24.0) for number in (4, 3, 2)), others=others))
    code, said = boa("--days", "4", "--json")
    row = json.loads(said)["days"][0]

    assert code == 0
    assert row["kinds"]["disk"] == {"ledger_usd": 0.0, "cost_explorer_usd": 9.0}
    assert row["kinds"]["gateway"] == {"ledger_usd": pytest.approx(1.08), "cost_explorer_usd": 1.1}
    assert json.loads(said)["days"][1]["kinds"]["gateway"]["ledger_usd"] == 0.0
    said_there = {kind: each["cost_explorer_usd"] for kind, each in row["kinds"].items()}
    assert said_there == {
        "compute": 24.0, "disk": 9.0, "address": 0.12, "requests": 1.5, "transfer": 3.5, "gateway": 1.1,
        "images": 0.2, "storage": 2.0, "other": 0.3,
    }  # fmt: skip
    assert row["kinds"]["compute"] == {"ledger_usd": pytest.approx(24.0), "cost_explorer_usd": 24.0}


def test_a_bill_in_another_currency_is_refused(bill: list[dict[str, Any]]) -> None:
    """An amount in yuan cannot be compared with dollars."""
    bill.append(page((days_ago(2), 1.0), unit="CNY"))
    calls = AwsCalls(AwsSettings(cluster="lab", instance_types=("g5.xlarge",)))
    with pytest.raises(NoCostData, match="CNY"):
        explorer_days(calls, "lab", days_ago(2), days_ago(1))


@given(ledger=st.floats(0.0, 1e4), explorer=st.floats(0.0, 1e4), ago=st.integers(0, 5))
def test_drift_is_a_final_day_beyond_the_tolerance(ledger: float, explorer: float, ago: int) -> None:
    """The tolerance is 2 % of the ledger or 5 cents, whichever is more; the last two days never drift."""
    now = datetime(2026, 5, 10, 12, tzinfo=UTC)
    day = now.date() - timedelta(days=ago)
    found = compare_days({day: ledger}, {day: explorer}, first=day, now=now.timestamp())
    assert found[0].day == day
    assert len(found) == ago + 1
    assert found[0].is_drift == (ago >= 2 and abs(explorer - ledger) > max(0.02 * ledger, 0.05))
    assert not any(row.is_drift for row in found[1:])
