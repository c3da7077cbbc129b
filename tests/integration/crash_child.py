"""The child process of the crash suite: each order is run by a fork, which runs ticks and kills itself.

An order is a JSON line. The answer is a JSON line with the exit status of the fork. A fork starts with
nothing but its journal on disk. `kill_at` numbers the points before each call to AWS, each commit and each
end of a tick. A point is counted only if a call that changes something was made, or a byte on disk changed,
since the point before: otherwise dying here would leave the same state as dying there.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kill_points import what_is_left

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.store.memory import MemoryStore
from boa_daemon.testing import ManualClock, NoJobs, Wishes
from boa_daemon.tick.decide.controller import Controller, Ports
from boa_daemon.tick.facts.state import Rules, WarmPool
from policies.placement.first_fit import FirstFit

TYPE = "g5.xlarge"
WRITES = (
    "next_tick",
    "record_intents",
    "record_outcomes",
    "record_seen",
    "give_up",
    "close_offers",
    "record_charge",
    "reopen_charges",
    "reopen_books",
    "record_memory",
)
"""What the ticks write: a call of each is one commit, as in the store of a daemon."""
QUESTIONS_OF_STORE = (
    "unsettled",
    "cooldowns",
    "settled_micro_dollars",
    "settled_since",
    "standing_charged_until",
    "acts_since",
    "books_opened_at",
    "memory",
    "record_decision",
)
"""What leaves nothing that a next process must find."""
ONE_OF_SEVERAL = ("record_intent", "record_outcome")
"""What goes through the write of several."""


QUESTIONS = ("Describe", "Get", "List")
"""How the names of calls begin that change nothing."""


class Points:
    """Counts the points at which a death leaves a new state, and kills the process at one of them."""

    def __init__(self, kill_at: int | None, folder: Path) -> None:
        self.kill_at, self.count, self.folder = kill_at, 0, folder
        self.orders, self._left = 0, (-1, "")

    def pass_one(self) -> None:
        """Count this point if the state is new, and die if it is the chosen one."""
        left = (self.orders, what_is_left(self.folder))
        if left == self._left:
            return
        self._left = left
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1


class Journal(MemoryStore):
    """A store that writes each change to disk before applying it; a new store reads the changes back."""

    def __init__(self, path: Path, points: Points) -> None:
        super().__init__(keep=10_000)
        if path.exists():
            with path.open("rb") as file:
                while True:
                    try:
                        name, args, kwargs = pickle.load(file)
                    except EOFError:
                        break
                    getattr(MemoryStore, name)(self, *args, **kwargs)
        self._file = path.open("ab")
        self._points = points
        for name in WRITES:
            setattr(self, name, self._durable(name))

    def _durable(self, name: str) -> Any:
        def write(*args: Any, **kwargs: Any) -> Any:
            self._points.pass_one()
            pickle.dump((name, args, kwargs), self._file)
            self._file.flush()
            os.fsync(self._file.fileno())
            return getattr(MemoryStore, name)(self, *args, **kwargs)

        return write


class DyingCalls(AwsCalls):
    """AWS calls with a point before each one."""

    points: Points

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Pass a point, then make the call."""
        self.points.pass_one()
        self.points.orders += not operation.rpartition(":")[2].startswith(QUESTIONS)
        return super().call(operation, **arguments)


def run(order: dict[str, Any], session: Any) -> None:
    """Run ticks at the instants of an order, starting with the last instant that was reached."""
    folder = Path(order["folder"])
    points = Points(order["kill_at"], folder)
    settings = AwsSettings(
        cluster=order["cluster"], endpoint=order["endpoint"], instance_types=(TYPE,), zones=("us-east-1a",)
    )
    calls = DyingCalls(settings, session=session)
    calls.points = points
    clock, catalog = ManualClock(), Catalog.load()
    store = Journal(folder / "journal", points)
    cloud = AwsCloud(settings, catalog=catalog, clock=clock, calls=calls, ledger_id=order["cluster"])
    kind = catalog.instance_type(TYPE)
    now = folder / "now"
    for instant, wanted, pool in order["plan"]:
        if instant < float(now.read_text()):
            continue
        now.write_text(str(instant))
        clock.instant = instant
        controller = Controller(
            allocator=Wishes(widths={}, nodes={TYPE: wanted}),
            placer=FirstFit(),
            rules=Rules(
                instance_types={kind.gpu_type: kind},
                idle_hold_seconds=60.0 if pool else 0.0,
                warm_pool=WarmPool(nodes=pool) if pool else None,
            ),
            ports=Ports(clock=clock, cloud=cloud, jobs=NoJobs(), engine=NoJobs(), store=store),  # type: ignore[arg-type]
        )
        controller.run_once()
        points.pass_one()
    charges = [(each.node, each.started_at, each.ended_at, each.micro_dollars) for each in store.charges]
    (folder / "done").write_text(json.dumps({"points": points.count, "charges": charges}))


class Clients:
    """Makes each boto3 client once for all forks; each fork opens its own connections."""

    def __init__(self) -> None:
        import boto3

        self._session = boto3.session.Session()
        self._made: dict[tuple[object, ...], Any] = {}

    def client(self, service: str, *, region_name: str, endpoint_url: str, config: Any) -> Any:
        """Return the client of a service."""
        key = (service, region_name, endpoint_url, config.retries["total_max_attempts"])
        if key not in self._made:
            self._made[key] = self._session.client(
                service, region_name=region_name, endpoint_url=endpoint_url, config=config
            )
        return self._made[key]

    def make(self, order: dict[str, Any]) -> None:
        """Make the clients that a fork will use."""
        calls = AwsCalls(AwsSettings(endpoint=order["endpoint"]), session=self)
        for operation in ("ec2:RunInstances", "ec2:DescribeInstances"):
            calls._client(operation, "")


def serve(run: Callable[[dict[str, Any], Any], None]) -> None:
    """Serve orders until the end of the input; each `run(order, session)` runs in its own fork."""
    session = Clients()
    for line in sys.stdin:
        order = json.loads(line)
        session.make(order)
        child = os.fork()
        if child == 0:
            run(order, session)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(run)
