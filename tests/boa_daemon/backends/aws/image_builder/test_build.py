"""`aws/image_builder/build.py`: image builds, also those that die at any call, leave no other resources."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aws_rigs import CATALOG, AwsRig, OneSession, a_launch, a_rig
from botocore.config import Config
from request_shapes import request_shapes

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.cloud import IMAGES_SECONDS
from boa_daemon.backends.aws.doctor.offers import OffersDoctor
from boa_daemon.backends.aws.image_builder.build import IMAGE_SECONDS, ImageBuilder
from boa_daemon.backends.aws.image_builder.policy import image_policy
from boa_daemon.backends.aws.image_builder.recipe import BuildFailed, BuildResult, Recipe, builder_request
from boa_daemon.backends.aws.image_builder.script import check, image_contents
from boa_daemon.backends.aws.image_builder.state import STATE_FILE
from boa_daemon.backends.aws.instances.images import OwnImage, newest, own_images, remove, staleness
from boa_daemon.backends.aws.instances.launch_request import LaunchTarget
from boa_daemon.backends.aws.instances.termination_schedule import termination_policy
from boa_daemon.backends.aws.rights.policy_statements import UsedResources
from boa_daemon.backends.settings import OPEN_DRIVER
from boa_daemon.daemon.planner.planner import Planner
from boa_daemon.daemon.settings.config import Settings
from boa_daemon.errors import BoaError, InputError
from boa_daemon.testing.fake_checks import ACCOUNT
from boa_daemon.testing.fake_iam import Principal
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.limits import Caps
from boa_daemon.tick.facts.ports import Launched
from boa_daemon.tick.facts.state import ClusterState
from boa_daemon.tick.money.cap_projection import CapProjection
from boa_daemon.tick.money.ledger import bill

KEY = "AKIABUILDER"
PLAIN = Config(retries={"total_max_attempts": 1})
SESSION = OneSession(KEY)
MINUTES, DOCKER = 60.0, '#!/bin/bash\necho "$@" >> "$HOME/docker"\n'


QUESTIONS = ("Describe", "Get", "List")
"""How the names of calls begin that change nothing."""


class Died(BaseException):
    """An exception that no handler catches, in place of a SIGKILL."""


@dataclass
class Bench:
    """A fake AWS with working nodes, and a folder for the state of builds."""

    rig: AwsRig
    folder: Path
    nodes: FakeNodes
    calls: int = 0
    pace: float = 1.0
    said: list[str] = field(default_factory=list)

    def build(
        self, recipe: Recipe | None = None, *, die_at: int | None = None, after: bool = False
    ) -> BuildResult:
        """Build with the printed policy as the only rights; optionally die before or after one call.

        Only calls that make a difference are counted. Before a call: when an order was given, an answer
        changed or the state file was written since the last call. After a call: when the call was an order.
        """
        calls = AwsCalls(
            self.rig.settings, session=SESSION, tries=1, monotonic=itertools.count(0.0, 9.0).__next__
        )
        inner, self.calls = calls.call, 0
        answers: dict[str, Any] = {}
        is_new, state, file = True, b"", self.folder / STATE_FILE

        def pass_one() -> None:
            self.calls += 1
            if self.calls == die_at:
                raise Died

        def counted(operation: str, **arguments: Any) -> dict[str, Any]:
            nonlocal is_new, state
            is_order = not operation.partition(":")[2].startswith(QUESTIONS)
            written = file.read_bytes() if file.exists() else b""
            if not after and (is_new or written != state):
                pass_one()
            answer = inner(operation, **arguments)
            if after and is_order:
                pass_one()
            told = {key: value for key, value in answer.items() if key != "ResponseMetadata"}
            is_new, state = is_order or answers.get(operation) != told, written
            answers[operation] = told
            return answer

        calls.call = counted  # type: ignore[method-assign]
        builder = ImageBuilder(calls, self.folder, self.rig.clock, say=self.said.append, sleep=self._sleep)
        return builder.build(recipe or Recipe(base_name="ssm:/aws/service/x", base=self.base()), self.request)

    def dies(self, at: int, *, after: bool) -> bool:
        """Build, die at a call, and return whether the build made that many calls."""
        try:
            self.build(die_at=at, after=after)
        except Died:
            return True
        return False

    def base(self) -> str:
        """Return an image of the fake cloud."""
        return next(iter(self.rig.fake.backend("us-east-1").amis))

    def request(self, build: str, lease: float) -> Mapping[str, Any]:
        """Return the launch request of a builder."""
        site = LaunchTarget(image=self.base(), root_device="/dev/xvda")
        return builder_request(
            "g5.xlarge", build, lease, minutes=MINUTES, offer=self.rig.offer(), site=site,
            settings=self.rig.settings, catalog=CATALOG,
        )  # fmt: skip

    def _sleep(self, seconds: float) -> None:
        """Let time pass on the clock and on the nodes."""
        self.rig.pass_time(self.pace * seconds)
        time.sleep(0.01)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and end builders that have powered themselves off by then."""
        self.rig.pass_time(seconds)
        for life in self.rig.fake.live():
            if life.is_running and self.rig.clock.now() >= life.launched_at + 60.0 * MINUTES:
                self.rig.fake.end(life.id)

    def stopped(self) -> bool:
        """Whether the builder is stopped."""
        return any(life.stopped_at is not None for life in self.rig.fake.live())

    def check_clean(self, images: int) -> None:
        """Check that no instance lives, `images` images exist, and no other snapshot of BOA's is left."""
        found = own_images(self.rig.cloud.calls)
        snapshots = self.rig.fake.backend("us-east-1").snapshots.values()
        ours = {each.id for each in snapshots if any(tag["key"] == "boa:image" for tag in each.get_tags())}
        assert [life.id for life in self.rig.fake.live()] == []
        assert [image.state for image in found] == ["available"] * images
        assert ours == {name for image in found for name in image.snapshots}
        assert not (self.folder / STATE_FILE).exists()
        assert self.rig.fake.iam.denied == []


@contextmanager
def a_bench(folder: Path) -> Iterator[Bench]:
    """Give a bench with a fake AWS of its own."""
    terms = Terms(boot_seconds=20.0, shutdown_seconds=10.0, image_seconds=30.0)
    with a_rig("process", terms, instance_profile="boa-boa-node") as rig:
        SESSION.client(
            "iam", region_name="us-east-1", endpoint_url=None, config=PLAIN
        ).create_instance_profile(InstanceProfileName="boa-boa-node")
        uses = UsedResources(
            reports_queue_url=f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/boa-boa-reports"
        )
        allowed = image_policy(rig.settings, uses=uses, account=ACCOUNT)
        rig.fake.iam.principals[KEY] = Principal(f"arn:aws:iam::{ACCOUNT}:role/builder", [allowed])
        rig.fake.nodes = nodes = FakeNodes(folder / "nodes", environment={}, agent_seconds=5.0)
        for tool in ("docker", "podman"):  # Some machines have podman, which a node would choose.
            shim = folder / "nodes" / "shims" / tool
            shim.write_text(DOCKER)
            shim.chmod(0o755)
        try:
            yield Bench(rig, folder / "state", nodes)
        finally:
            nodes.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a bench in the test's folder."""
    with a_bench(tmp_path) as made:
        yield made


def test_an_image_is_built_from_its_recipe_with_the_printed_policy_alone(bench: Bench) -> None:
    recipe = Recipe(
        base_name="ssm:/aws/service/x", base=bench.base(), pip=("torch==2.9.0",), containers=("org/image:1",),
        script='echo "mine" > "$HOME/mine"\n',
    )  # fmt: skip
    with request_shapes() as shapes:
        built = bench.build(recipe)
    bench.check_clean(1)
    assert shapes.faults == []
    assert built.image.holds.startswith("driver ")
    assert "pip torch==2.9.0; images org/image:1; own steps" in built.image.holds
    (life,) = bench.rig.fake.history()
    home = Path(bench.nodes.ssm.environment_of(life.id)["HOME"])
    assert (home / "docker").read_text() == "pull org/image:1\n"
    assert "install --no-cache-dir torch==2.9.0" in (home / "pip").read_text()
    assert (home / "mine").read_text() == "mine\n"
    assert (built.builder, built.image.base) == (life.id, bench.base())
    assert newest(bench.rig.cloud.calls).id == built.image.id


def test_nodes_boot_from_the_newest_image_and_older_images_are_removed(bench: Bench) -> None:
    recipe = Recipe(base_name="x", base=bench.base(), keep=1)
    before = bench.build(recipe)
    bench.rig.pass_time(3600.0)
    built = bench.build(recipe)
    bench.check_clean(1)
    assert built.removed == (before.image.id, *before.image.snapshots)
    cloud = bench.rig.another(image="built")
    outcome = cloud.launch(a_launch(bench.rig.offer()))
    assert isinstance(outcome, Launched)
    backend = bench.rig.fake.backend("us-east-1")
    assert backend.get_instance(outcome.nodes[0]).image_id == built.image.id


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    "point", [2, pytest.param(None, marks=pytest.mark.exhaustive)]
)  # Every other point takes half a second each.
def test_a_build_that_died_is_continued_and_leaves_one_image(
    tmp_path: Path, point: int | None, after: bool
) -> None:
    for number in [point] if point is not None else itertools.count(1):
        with a_bench(tmp_path / str(number)) as bench:
            if not bench.dies(number, after=after):
                assert number > (5 if after else 12), "a build gives more orders, and learns more, than these"
                break
            bench.rig.pass_time(30.0)
            bench.build()
            bench.check_clean(1)
            assert len(bench.rig.fake.history()) == 1, number


@pytest.mark.parametrize("point", [1, pytest.param(None, marks=pytest.mark.exhaustive)])
def test_an_abandoned_builder_is_ended_by_its_time_limit_and_the_sweep(
    tmp_path: Path, point: int | None
) -> None:
    """A running builder powers itself off; a stopped one is ended by the sweep of a daemon."""
    for number in [point] if point is not None else itertools.count(1):
        with a_bench(tmp_path / str(number)) as bench:
            if not bench.dies(number, after=True):
                break
            bench.pass_time(60.0 * MINUTES + 600.0)
            bench.rig.cloud.nodes()
            bench.rig.cloud.renew([life.id for life in bench.rig.fake.history()])
            bench.rig.cloud.sweep()
            assert [life.id for life in bench.rig.fake.live()] == [], number
            bench.rig.pass_time(60.0)
            bench.build()
            bench.check_clean(len(own_images(bench.rig.cloud.calls)))


def test_an_abandoned_stopped_builder_is_ended_by_its_schedule(tmp_path: Path) -> None:
    """Without a sweep it lives until no image can need it any more."""
    with a_bench(tmp_path) as bench:
        role = f"arn:aws:iam::{ACCOUNT}:role/boa-boa-pool-end"
        bench.rig.settings = bench.rig.settings.model_copy(update={"pool_end_role": role})
        bench.rig.fake.iam.principals["end"] = Principal(
            role, [termination_policy(bench.rig.settings, account=ACCOUNT)]
        )
        uses = UsedResources(
            reports_queue_url=f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/boa-boa-reports"
        )
        allowed = image_policy(bench.rig.settings, uses=uses, account=ACCOUNT)
        bench.rig.fake.iam.principals[KEY] = Principal(f"arn:aws:iam::{ACCOUNT}:role/builder", [allowed])
        died = next(at for at in itertools.count(1) if bench.dies(at, after=True) and bench.stopped())
        assert died > 1
        begun = bench.rig.fake.live()[0].launched_at
        bench.pass_time(begun + 60.0 * MINUTES + IMAGE_SECONDS - 60.0 - bench.rig.clock.now())
        assert len(bench.rig.fake.live()) == 1
        bench.pass_time(120.0)
        assert bench.rig.fake.live() == []
        assert bench.rig.fake.iam.denied == []


def test_a_failed_build_script_ends_the_builder_and_its_output_is_in_the_error(bench: Bench) -> None:
    recipe = Recipe(base_name="x", base=bench.base(), script="echo no space left >&2; exit 7")
    with pytest.raises(BuildFailed, match="no space left"):
        bench.build(recipe)
    bench.check_clean(0)


def test_a_builder_with_a_hanging_script_is_ended_within_its_time_limit(bench: Bench) -> None:
    bench.pace = 15.0
    recipe = Recipe(base_name="x", base=bench.base(), script="sleep 3600", minutes=10.0)
    with pytest.raises(BuildFailed, match="not prepared in time"):
        bench.build(recipe)
    bench.check_clean(0)
    (life,) = bench.rig.fake.history()
    assert life.ended_at is not None
    assert life.ended_at - life.launched_at <= 780.0


def test_a_builder_is_billed_and_capped_as_a_terminating_node(bench: Bench) -> None:
    with pytest.raises(Died):
        bench.build(die_at=1, after=True)
    cloud = bench.rig.cloud
    bench.rig.pass_time(120.0)
    (node,) = cloud.nodes()
    lease = bench.rig.clock.now() - 120.0 + 60.0 * MINUTES
    assert (node.phase, node.ends_by, node.launched_by[:6]) == ("terminating", lease, "image-")
    assert cloud.elsewhere() == ""
    assert bill(node, until=bench.rig.clock.now()) > 0
    cloud.renew([node.id])
    (again,) = cloud.nodes()
    assert again.ends_by == lease
    hour = node.usd_per_hour * (MINUTES - 2.0) / 60.0
    state = ClusterState(now=bench.rig.clock.now(), tick=1, nodes={node.id: node}, jobs={})
    meter = bill(node, until=state.now) / 1e6
    for usd, is_broken in ((meter + hour - 0.01, True), (meter + hour + 0.01, False)):
        caps = Caps(usd_per_day=usd, usd_per_month=None, usd_per_hour=None, instances=None)
        assert (CapProjection(state, caps).broken is not None) == is_broken


def test_age_base_and_disk_size_make_an_image_stale(rig: AwsRig) -> None:
    calls, now = rig.cloud.calls, rig.clock.now()
    image = OwnImage(
        id="ami-1", name="n", state="available", built_at=now - 40 * 86_400.0, base="ami-0old",
        base_name=OPEN_DRIVER, holds="driver 570", volume_gib=400, snapshots=(), root_device="/dev/xvda",
    )  # fmt: skip
    said = list(staleness(calls, image, now))
    assert said[0] == "it is 40 days old"
    assert said[1].startswith("its base is ami-0old, and ")
    assert "volume_gib is 200" in said[2]
    fresh = replace(image, base_name="ami-0old", volume_gib=200, built_at=now)
    assert list(staleness(calls, fresh, now)) == []


def test_the_doctor_warns_of_an_old_image(bench: Bench) -> None:
    bench.build(Recipe(base_name=bench.base(), base=bench.base()))
    cloud = bench.rig.another(image="built")
    for days, status in ((1.0, "ok"), (45.0, "warning")):
        bench.rig.pass_time(days * 86_400.0)
        found = {check.name: check for check in OffersDoctor(cloud, CATALOG, bench.rig.clock).images()}
        assert found["image g5.xlarge"].status == status
        assert ("days old" in found["image g5.xlarge"].said) == (status == "warning")


@pytest.mark.parametrize(
    "wrong",
    [{"pip": ["torch; rm -rf /"]}, {"pip": ["-r x"]}, {"containers": ["$(id)"]}, {"containers": ["/a.sif"]}],
)
def test_a_malformed_requirement_or_container_name_is_refused(wrong: dict[str, list[str]]) -> None:
    with pytest.raises(InputError, match=r"is not (a requirement|an image)"):
        check(**{"pip": [], "containers": [], **wrong})


def test_the_contents_of_an_image_fit_into_a_tag() -> None:
    assert image_contents("no word") is None
    assert image_contents("BOA_IMAGE_HOLDS ") == "nothing beside the base"
    said = image_contents("BOA_IMAGE_HOLDS " + "é(x)" * 200)
    assert said is not None
    assert len(said) <= 256
    assert "(" not in said


def test_an_unreadable_state_file_stops_the_build_before_a_launch(bench: Bench) -> None:
    bench.folder.mkdir()
    (bench.folder / STATE_FILE).write_text("{")
    with pytest.raises(BoaError, match="cannot be read"):
        bench.build()
    assert bench.rig.fake.history() == []


def test_images_count_towards_the_caps_until_they_are_removed(bench: Bench) -> None:
    """Their full disks are a standing cost from the next refresh on."""
    cloud = bench.rig.another()
    cloud.refresh()
    assert cloud.standing() == ()
    bench.build()
    bench.rig.pass_time(IMAGES_SECONDS)
    cloud.refresh()
    images = own_images(bench.rig.cloud.calls)
    expected = sum(image.volume_gib for image in images) * 0.05 / 730.0
    assert cloud.standing() == (("images", pytest.approx(expected)),)
    assert expected > 0.0

    planner = Planner(Settings())
    before = planner.rules().caps.standing_usd_per_hour
    planner.standing_of_cloud = cloud.standing
    assert planner.rules().caps.standing_usd_per_hour == pytest.approx(before + expected)

    remove(bench.rig.cloud.calls, images)
    bench.rig.pass_time(IMAGES_SECONDS)
    cloud.refresh()
    assert cloud.standing() == ()
