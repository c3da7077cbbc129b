"""A fake AWS in process or over sockets, and orders to launch and end nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing import ManualClock
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FakeServer, mocked
from boa_daemon.tick.facts.actions import LaunchNodes, TerminateNode
from boa_daemon.tick.facts.offers import Offer

START = 1_800_000_000.0
CATALOG = Catalog.load()


class OneSession:
    """Makes each client once for all tests: reading EC2's description takes 1 s, making a client 0.1 s."""

    def __init__(self, access_key: str | None = None) -> None:
        self._session = boto3.session.Session(access_key, access_key and "testing")
        self._made: dict[tuple[object, ...], Any] = {}

    def client(self, service: str, *, region_name: str, endpoint_url: str | None, config: Any) -> Any:
        """Return the client for these arguments; clients with an endpoint are made anew."""
        key = (service, region_name, config.retries["total_max_attempts"])
        if endpoint_url or key not in self._made:
            made = self._session.client(
                service, region_name=region_name, endpoint_url=endpoint_url, config=config
            )
            if endpoint_url:
                return made
            self._made[key] = made
        return self._made[key]


SESSION = OneSession()


@dataclass(slots=True)
class AwsRig:
    """The AWS backend, the fake cloud behind it, and the clock of both."""

    fake: FakeCloud
    clock: ManualClock
    settings: AwsSettings
    said: list[str] = field(default_factory=list)
    read_timeout_seconds: float = 30.0
    cloud: AwsCloud = field(init=False)

    def __post_init__(self) -> None:
        self.cloud = self.another()

    def another(self, **changes: object) -> AwsCloud:
        """Return a backend without memory, as after a restart."""
        settings = self.settings.model_copy(update=changes)
        ticking = iter(range(10**9))
        calls = AwsCalls(
            settings,
            session=SESSION,
            read_timeout_seconds=self.read_timeout_seconds,
            tries=1,
            monotonic=lambda: float(next(ticking)),
        )
        return AwsCloud(
            settings,
            catalog=CATALOG,
            clock=self.clock,
            calls=calls,
            ledger_id="test",
            say=self.said.append,
            sleep=lambda seconds: None,
        )

    def offer(self, name: str = "g5.xlarge", market: str = "on-demand", zone: str = "us-east-1a") -> Offer:
        """Return the offer of a type in a zone."""
        return next(
            offer
            for offer in self.cloud.offers()
            if (offer.instance_type, offer.market, offer.zone) == (name, market, zone)
        )

    def pass_time(self, seconds: float) -> None:
        """Advance the clock."""
        self.clock.instant += seconds


def a_launch(offer: Offer | None, count: int = 1, *, name: str = "", is_gang: bool = False) -> LaunchNodes:
    """Return an order to launch; its id is its name."""
    kind = CATALOG.instance_type("g5.xlarge" if offer is None else offer.instance_type)
    return LaunchNodes(
        id=name or f"t1-launch-{kind.name}-0",
        instance_type=kind,
        count=count,
        is_gang=is_gang,
        offer=offer,
        reason="test",
    )


def ends(*names: str) -> list[TerminateNode]:
    """Return orders to end nodes."""
    return [TerminateNode(id=f"end-{name}", node=name, reason="test") for name in names]


@contextmanager
def a_rig(front: str, terms: Terms | None = None, **settings: object) -> Iterator[AwsRig]:
    """Yield a rig on the fake AWS in `process` or behind a `server`."""
    clock = ManualClock(START)
    fake = FakeCloud(clock.now, terms or Terms(boot_seconds=90.0, shutdown_seconds=60.0))
    values: dict[str, object] = {
        "instance_types": ("g5.xlarge", "p4d.24xlarge"),
        "zones": ("us-east-1a", "us-east-1b"),
    }
    with ExitStack() as stack:
        if front == "process":
            stack.enter_context(mocked(fake))
        else:
            values["endpoint"] = stack.enter_context(FakeServer(fake))
        timeout = 30.0 if front == "process" else 5.0
        yield AwsRig(fake, clock, AwsSettings.model_validate(values | settings), read_timeout_seconds=timeout)


RigMaker = Callable[..., AwsRig]
