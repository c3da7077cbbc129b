"""`[cloud] tags`: the house's own tags are on everything that BOA makes, with their case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_rigs import RigMaker, a_launch
from pydantic import ValidationError

from boa_daemon.backends.aws.instances.blocks import BlockOffering, buy
from boa_daemon.backends.aws.instances.launch_request import LaunchTarget, run_request
from boa_daemon.backends.aws.stack.settings import stack_settings_of
from boa_daemon.backends.aws.stack.template import StackOptions, stack_template
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.daemon.settings.setting_layers import load_aws_settings
from boa_daemon.errors import InputError
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Launched, Refused

HOUSE = {"CostCentre": "ML Research 42", "owner:team": "vision@example.org"}


def tags_in(listed: list[dict[str, str]]) -> dict[str, str]:
    """Return listed tags as a mapping."""
    return {each["Key"]: each["Value"] for each in listed}


@pytest.mark.parametrize("market", ["on-demand", "spot", "reserved"])
def test_a_launch_tags_every_resource_that_it_makes(market: str) -> None:
    """Instance, disk, interface and spot request have the tags, and BOA's own too."""
    offer = Offer(instance_type="g5.xlarge", zone="us-east-1a", market=market, usd_per_hour=1.0)  # type: ignore[arg-type]
    target = LaunchTarget(image="ami-1", root_device="/dev/xvda", reservation="cr-1")
    request = run_request(a_launch(offer), offer, target, AwsSettings(tags=HOUSE), ledger_id="t", lease=1.0)
    by_kind = {each["ResourceType"]: tags_in(each["Tags"]) for each in request["TagSpecifications"]}

    wanted = {"instance", "volume", "network-interface"} | (
        {"spot-instances-request"} if market == "spot" else set()
    )
    assert by_kind.keys() == wanted
    assert all(tags.items() >= HOUSE.items() for tags in by_kind.values())
    assert all(tags["boa:cluster"] == "boa" for tags in by_kind.values())


def test_the_stack_gives_its_resources_the_tags() -> None:
    """Queues, bucket, roles and security group have them in the template."""
    settings = AwsSettings(tags=HOUSE, cluster="lab")
    template = stack_template(settings, StackOptions())
    tagged = {
        each["Type"]: tags_in(each["Properties"]["Tags"])
        for each in template["Resources"].values()
        if "Tags" in each["Properties"]
    }

    kinds = {"AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::IAM::Role", "AWS::EC2::SecurityGroup"}
    assert tagged.keys() >= kinds
    assert all(tags.items() >= HOUSE.items() for tags in tagged.values())
    assert stack_settings_of(settings, account="1").settings.tags == HOUSE


class Purchases:
    """Records a purchase."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Answer with a reservation."""
        self.tags = tags_in(arguments["TagSpecifications"][0]["Tags"])
        return {"CapacityReservation": {"CapacityReservationId": "cr-1"}}


def test_a_capacity_block_has_the_tags() -> None:
    """A purchase is the dearest thing that BOA makes."""
    calls, settings = Purchases(), AwsSettings(tags=HOUSE)
    offering = BlockOffering(
        id="cbo-1",
        instance_type="p5.48xlarge",
        zone="us-east-1a",
        instances=1,
        begins_at=0.0,
        ends_at=1.0,
        usd=9.0,
    )
    buy(calls, settings, offering, usd=9.0)  # type: ignore[arg-type]

    assert calls.tags == {**HOUSE, "boa:cluster": "boa"}


@pytest.mark.parametrize("market", ["on-demand", "spot"])
def test_an_organisation_that_wants_a_tag_on_each_launch(make_rig: RigMaker, market: str) -> None:
    """Without the tag each launch is refused; with it a node is rented, and its parts carry the tag."""
    terms = Terms(required_tags=("CostCentre",), spot_fraction=0.4, enforces_cluster="boa")
    rig = make_rig(terms, market=market, tags={"CostCentre": "42"})
    bare = rig.another(tags={}).launch(a_launch(rig.offer(market=market), name="t1-bare"))
    outcome = rig.cloud.launch(a_launch(rig.offer(market=market)))

    assert isinstance(bare, Refused)
    assert "service control policy" in bare.reason
    assert isinstance(outcome, Launched)
    assert rig.fake.history()[0].tags["CostCentre"] == "42"


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ({"aws:owner": "x"}, "AWS's own"),
        ({"AWS:owner": "x"}, "AWS's own"),
        ({"boa:cluster": "x"}, "BOA's own"),
        ({"Name": "x"}, "BOA's own"),
        ({"": "x"}, "no key"),
        ({"a" * 129: "x"}, "no key"),
        ({"Cost Centre": "x"}, "no space"),
        ({"team/vision": "x"}, "no slash"),
        ({"team;": "x"}, "no key"),
        ({"_index": "x"}, "no key"),
        ({"owner": ""}, "no value"),
        ({"owner": "x" * 257}, "no value"),
        ({"owner": "a;b"}, "no value"),
        ({"owner": " a"}, "no value"),
        ({"Owner": "a", "owner": "b"}, "differ in case alone"),
        ({f"k{number}": "x" for number in range(31)}, "31 tags"),
    ],
)
def test_what_aws_refuses_is_refused_at_reading(tags: dict[str, str], said: str) -> None:
    """A tag that a launch would fail by never reaches a launch."""
    with pytest.raises(ValidationError, match=said):
        AwsSettings(tags=tags)


def test_tags_are_read_from_the_settings_with_their_case(tmp_path: Path) -> None:
    """A wrong one is named with its file and line."""
    path = tmp_path / "boa.toml"
    path.write_text('[cloud]\nprovider = "aws"\ntags = {CostCentre = "Ärzte 7", owner = "ML/a"}\n')
    assert load_aws_settings(path).tags == {"CostCentre": "Ärzte 7", "owner": "ML/a"}

    path.write_text('[cloud]\nprovider = "aws"\n[cloud.tags]\n"Cost Centre" = "7"\n')
    with pytest.raises(InputError, match=r"boa\.toml:\d: cloud\.tags .*no key"):
        load_aws_settings(path)


def test_nodes_carry_the_tags_that_ec2_shows(make_rig: RigMaker) -> None:
    """Cost reports use them as AWS's bill does: those of the launch, without BOA's and AWS's own."""
    rig = make_rig(Terms(boot_seconds=60.0), tags=HOUSE)
    assert isinstance(rig.cloud.launch(a_launch(rig.offer())), Launched)
    rig.clock.instant += 90.0
    (node,) = rig.cloud.nodes()

    assert dict(node.tags) == HOUSE
