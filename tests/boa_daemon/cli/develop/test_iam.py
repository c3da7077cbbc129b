"""`boa iam` prints the policy that was asked for, or what it lacks to make one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.cli.common.output import OutputFormat
from boa_daemon.cli.develop.iam import QueueName, iam
from boa_daemon.errors import InputError

QUEUE = "https://sqs.eu-west-1.amazonaws.com/{}/boa"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the file of the test is read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def printed(
    capsys: pytest.CaptureFixture[str], cloud: str = "", engine: str = "", **flags: Any
) -> dict[str, Any]:
    """Return what is printed under these settings, as JSON."""
    Path("boa.toml").write_text(
        f'[cloud]\nprovider = "aws"\nregion = "eu-west-1"\n{cloud}\n[engine]\nname = "ssm"\n{engine}\n'
    )
    iam(**flags)
    return dict(json.loads(capsys.readouterr().out))


def test_each_flag_prints_another_policy(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a policy, with the account where it is given."""
    kinds: list[dict[str, Any]] = [{}, {"node": True}, {"image": True}, {"pool_end": True}]
    found = [printed(capsys, account="123456789012", **flags) for flags in kinds]
    assert len({json.dumps(one) for one in found}) == len(found)
    assert all(one["Version"] == "2012-10-17" and one["Statement"] for one in found)
    assert "123456789012" in json.dumps(found[0])


@pytest.mark.parametrize("account", ["12345678901", "1234567890123", "12345678901x", "\u0661" * 12, ""])
def test_an_account_has_twelve_digits(capsys: pytest.CaptureFixture[str], account: str) -> None:
    """Those of ASCII."""
    with pytest.raises(InputError, match=r"is not an account id\. It has 12 digits"):
        printed(capsys, account=account)


def test_the_policy_of_the_bucket_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Settings that name none cannot have one."""
    found = printed(capsys, engine='uri = "s3://ours/site"', bucket=True)
    assert "arn:aws:s3:::ours/*" in json.dumps(found)
    with pytest.raises(InputError, match="uri names no bucket"):
        printed(capsys, bucket=True)


def test_the_policy_of_a_queue_is_of_its_account(capsys: pytest.CaptureFixture[str]) -> None:
    """Which is in its address, or given; each queue has an address of its own."""
    url = QUEUE.format("111122223333")
    found = printed(capsys, cloud=f'queue_url = "{url}"', queue=QueueName.warnings)
    assert "arn:aws:sqs:eu-west-1:111122223333:boa" in json.loads(found["Policy"])["Statement"][0]["Resource"]
    reports = printed(capsys, engine=f'queue_url = "{url}"', queue=QueueName.reports)
    assert reports != found
    with pytest.raises(InputError, match=r"\[engine\] queue_url names no queue"):
        printed(capsys, cloud=f'queue_url = "{url}"', queue=QueueName.reports)


def test_a_policy_is_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The template is YAML, all others are JSON."""
    with pytest.raises(InputError, match="cannot be printed as CSV"):
        printed(capsys, output=OutputFormat.csv)
    iam(cloudformation=True)
    assert capsys.readouterr().out.startswith(("AWSTemplateFormatVersion", "'AWSTemplate", "Description"))
