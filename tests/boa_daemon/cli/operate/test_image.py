"""`boa image`: a dry run, a build under the caps, the list of images and their removal."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
from verbs import exit_code

from boa_daemon.backends.aws.image_builder import build as image_build
from boa_daemon.daemon.loop.assembly import database_url, open_storage
from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import INFEASIBLE, USAGE
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import mocked

Boa = Callable[..., tuple[int, Any, str]]
SETTINGS = """[budget]
usd_per_hour = 10.0
usd_per_day_cap = {cap}
[cloud]
provider = "aws"
instance_types = ["g5.12xlarge", "g5.xlarge"]
zones = ["us-east-1a"]
instance_profile = "boa-boa-node"
[engine]
name = "ssm"
[daemon]
state_dir = "state"
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """A fake cloud on real time whose nodes work."""
    monkeypatch.setattr(image_build, "LOOK_SECONDS", 0.1)
    with mocked(FakeCloud(time.time, Terms(vcpu_quotas={"L-DB2E81BA": 64}))) as cloud:
        boto3.client("iam", region_name="us-east-1").create_instance_profile(
            InstanceProfileName="boa-boa-node"
        )
        cloud.nodes = FakeNodes(tmp_path / "nodes", environment={}, agent_seconds=0.0)
        yield cloud
        cloud.nodes.close()


@pytest.fixture
def boa(
    fake: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Boa:
    """Return a function that runs a command beside a boa.toml and gives exit code, JSON and all output."""
    monkeypatch.chdir(tmp_path)
    Path("boa.toml").write_text(SETTINGS.format(cap=300))

    def run(*words: str, is_json: bool = True) -> tuple[int, Any, str]:
        code = exit_code(monkeypatch, *words, *(["--json"] if is_json else []))
        said = capsys.readouterr()
        document = json.loads(said.out) if is_json and said.out else None
        return code, document, said.out + said.err

    return run


def test_without_yes_the_build_is_priced_and_nothing_is_rented(boa: Boa, fake: FakeCloud) -> None:
    code, said, _ = boa("image", "build", "--pip", "torch", "--minutes", "30")
    assert code == 0
    assert (said["instance_type"], said["zones"], said["pip"]) == ("g5.xlarge", ["us-east-1a"], ["torch"])
    price = 1.006 + 200 * 0.08 / 730 + 0.005 + 240 * (0.01 / 1000 + 0.4e-6)
    assert said["most_usd"] == pytest.approx(price * 40 / 60, abs=2e-4)
    assert said["most_usd_per_month"] == 10.0
    assert not said["is_built"]
    assert fake.history() == []
    assert "image" not in tomllib.loads(Path("boa.toml").read_text())["cloud"]
    _, _, text = boa("image", "build", is_json=False)
    assert "Nothing was rented" in text


def test_an_image_is_built_billed_used_listed_and_removed(boa: Boa, fake: FakeCloud) -> None:
    code, said, text = boa("image", "build", "--pip", "torch==2.9.0", "--yes")
    assert code == 0, text
    (life,) = fake.history()
    assert life.ended_at is not None
    assert tomllib.loads(Path("boa.toml").read_text())["cloud"]["image"] == "built"
    with closing(open_storage(database_url(load_settings(Path("boa.toml")).settings))) as storage:
        assert storage.store.settled_micro_dollars() >= 1_000_000 * 1.006 / 60
    code, listed, _ = boa("image", "list")
    (image,) = listed["images"]
    assert (code, image["id"], image["state"]) == (0, said["image"], "available")
    assert "torch==2.9.0" in image["holds"]
    _, _, text = boa("image", "list", is_json=False)
    assert said["image"] in text
    code, gone, _ = boa("image", "remove", "--keep", "0")
    assert (code, gone["removed"][0]) == (0, said["image"])
    assert boa("image", "list")[1]["images"] == []


def test_a_build_that_could_break_a_cap_is_refused(boa: Boa, fake: FakeCloud) -> None:
    Path("boa.toml").write_text(
        SETTINGS.format(cap=240).replace("10.0", "10.0\nstanding_usd_per_hour = 9.95")
    )
    code, said, _ = boa("image", "build", "--yes")
    assert code == INFEASIBLE
    assert "usd_per_day_cap $240.00 leaves $0.87" in said["message"]
    assert fake.history() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("build", "--yes", "--type", "p4d.24xlarge"), "is not in [cloud] instance_types"),
        (("build", "--yes", "--pip", "a b"), "is not a requirement of pip"),
        (("build", "--yes", "--script", "missing.sh"), "cannot read the script"),
        (("remove",), "name images, or give --keep N"),
        (("remove", "ami-1"), "no image of cluster boa"),
    ],
)
def test_wrong_arguments_of_image_are_named(
    boa: Boa, fake: FakeCloud, words: tuple[str, ...], message: str
) -> None:
    """Nothing is rented, even with --yes."""
    code, said, _ = boa("image", *words)
    assert code == USAGE
    assert message in said["message"]
    assert fake.history() == []
