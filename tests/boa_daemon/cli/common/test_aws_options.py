"""Shared by the AWS verbs: which settings and regions are meant, and answers of regions that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.cli.common.aws_options import in_each_region, regions_of, settings_of, used_resources
from boa_daemon.errors import InputError

TOPIC = "arn:aws:sns:us-east-1:123456789012:boa"
QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/q"
DOWN = CallFailed("ec2:DescribeInstances", "InternalError", "down", http_status=500)


def ask(region: str) -> str:
    """Answer for some regions."""
    if region.startswith("down"):
        raise DOWN
    return region.upper()


def test_regions_that_do_not_answer_are_named() -> None:
    """The others' answers count; in the order of the regions."""
    found, unanswered = in_each_region(["a", "down-1", "b"], ask)
    assert found == ["A", "B"]
    assert list(unanswered) == ["down-1"]
    assert "down" in unanswered["down-1"]


@pytest.mark.parametrize("regions", [["down-1"], ["down-1", "down-2"]])
def test_if_no_region_answers_that_is_an_error(regions: list[str]) -> None:
    """Nothing is known then."""
    with pytest.raises(CallFailed):
        in_each_region(regions, ask)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the files of the test are read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_flags_come_before_the_file() -> None:
    """A file that --config names must exist; the default one need not."""
    Path("own.toml").write_text('[cloud]\nprovider = "aws"\nregion = "eu-west-1"\ncluster = "lab"\n')
    found = settings_of(Path("own.toml"))
    assert (found.region, found.cluster) == ("eu-west-1", "lab")
    found = settings_of(Path("own.toml"), region="us-west-2", cluster="other")
    assert (found.region, found.cluster) == ("us-west-2", "other")
    assert settings_of(Path("boa.toml")).region
    with pytest.raises(InputError, match="there is no such settings file"):
        settings_of(Path("typo.toml"))
    with pytest.raises(InputError, match="us-wset-2"):
        settings_of(Path("own.toml"), region="us-wset-2")


def test_named_regions_count_once_and_others_are_the_settings() -> None:
    """A mistyped one is refused before anything is asked."""
    Path("own.toml").write_text('[cloud]\nprovider = "aws"\nregions = ["eu-west-1", "us-east-1"]\n')
    settings = settings_of(Path("own.toml"))
    assert regions_of(["us-east-1", "us-west-2", "us-east-1"], settings) == ["us-east-1", "us-west-2"]
    assert regions_of(None, settings) == ["eu-west-1", "us-east-1"]
    assert regions_of(None, settings_of(Path("boa.toml"))) == [settings_of(Path("boa.toml")).region]
    with pytest.raises(InputError, match="us-wset-2"):
        regions_of(["us-wset-2"], settings)


def test_what_a_daemon_uses_besides_its_cloud_is_in_its_settings() -> None:
    """Nothing without a file."""
    Path("own.toml").write_text(
        '[engine]\nname = "ssm"\nuri = "s3://b/p"\nqueue_url = "' + QUEUE + '"\n'
        f'[alerts]\nsns_topic = "{TOPIC}"\n'
    )
    uses = used_resources(Path("own.toml"))
    assert (uses.uri, uses.reports_queue_url, uses.sns_topic) == ("s3://b/p", QUEUE, TOPIC)
    assert not used_resources(Path("boa.toml")).uri
