"""A fake AWS on top of moto for tests, less reliable than AWS: what moto lacks, and faults on demand.

moto implements call shapes, tags and filters; it has no capacity, quotas, prices or time, and launches a
second instance for a repeated token. `FakeCloud` stands between the caller and moto, in process
(`boa_daemon.testing.fronts.mocked`) or over sockets (`fronts.FakeServer`), with the same rules:

- a repeated token returns the same instances, or is refused if the request differs;
- each (type, zone, market) has a stock, and each quota a number of vCPUs; a launch gets what is available, or
  nothing;
- instances are invisible, then pending, then running, and take time to end, on a clock that the test sets;
- spot prices follow a path; a price above the bid causes a warning, and two minutes later the end;
- launches without our tag are denied, as by the policy of `boa iam`; callers in `iam.principals` are held to
  all their policies (`boa_daemon.testing.fake_iam`);
- with `nodes`, instances run the commands that SSM gets for them (`boa_daemon.testing.fake_nodes`).

Compare ledgers with `history()`, which is the truth.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import RLock
from typing import Any

from moto import backends as moto_backends
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models.amis import Ami
from moto.ec2.models.instances import StateReason

from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing import fake_blocks, fake_health, fake_images, fake_side, fake_stops, fake_topology
from boa_daemon.testing.fake_answers import Answer, Call, ec2_error, reason_time
from boa_daemon.testing.fake_faults import HTTP_STATUS, Faults, Throttle
from boa_daemon.testing.fake_iam import FakeIam
from boa_daemon.testing.fake_launch import comparable, for_moto, grant, market_of, refused
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_schedules import FakeScheduler
from boa_daemon.testing.fake_terms import Lifetime, Terms

LISTED_AFTER_END_SECONDS = 3600.0
IMAGE = "ami-03cf127a"
_IDS = re.compile(rb"<instanceId>(i-[0-9a-f]+)</instanceId>")
Forward = Callable[[bytes], Answer]


class FakeCloud:
    """The rules of the fake cloud; a front passes every request, and a function that forwards it to moto."""

    def __init__(self, clock: Callable[[], float], terms: Terms | None = None) -> None:
        # Loading moto's 1,300 images would take a fifth of a second per cloud.
        os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        self.clock = clock
        self.terms = terms or Terms()
        self.faults = Faults()
        self.forbidden: list[str] = []
        self.catalog = Catalog.load()
        self.iam = FakeIam(self._tags_of)
        self.scheduler = FakeScheduler(self.iam, self.end)
        self.nodes: FakeNodes | None = None
        self._with_way_out: set[str] = set()
        self._throttle = Throttle(clock)
        self._lives: dict[str, Lifetime] = {}
        self._by_token: dict[tuple[str, str], tuple[Mapping[str, str], Answer]] = {}
        self._lock = RLock()

    def history(self) -> Sequence[Lifetime]:
        """Return every instance since the start, in order of launch."""
        with self._lock:
            return list(self._lives.values())

    def live(self) -> Sequence[Lifetime]:
        """Return the instances that cost money."""
        self._advance()
        return [life for life in self.history() if life.ended_at is None]

    def end(self, name: str, reason: str = "Client.InstanceInitiatedShutdown") -> None:
        """End an instance from the inside or from AWS's side; the listed reason then has no time."""
        with self._lock:
            life = self._lives[name]
            if life.ended_at is None:
                life.ended_at, life.reason = self.clock(), reason
                self._teardown(life)
                fake_side.send_event(self, life, "EC2 Instance State-change Notification", "shutting-down")

    def stop(
        self, name: str, reason: str = "Server.ScheduledStop: Stopped due to scheduled retirement"
    ) -> None:
        """Stop an instance from AWS's side."""
        with self._lock:
            life = self._lives[name]
            life.stopped_at, life.reason = self.clock(), reason
            self.backend(life.region).get_instance(name).stop()

    def restart(self, name: str) -> None:
        """Stop an instance and start it again at once, as a person does."""
        with self._lock:
            life, now = self._lives[name], float(int(self.clock()))
            life.runs.append((life.launched_at, now))
            life.launched_at = now
            instance = self.backend(life.region).get_instance(name)
            instance.launch_time = datetime.fromtimestamp(now, tz=UTC).replace(tzinfo=None)

    def warn(self, name: str) -> None:
        """Announce that a spot instance is taken back in two minutes."""
        with self._lock:
            life = self._lives[name]
            life.warned_at = self.clock()
            fake_side.send_event(self, life, "EC2 Spot Instance Interruption Warning")

    def handle(self, call: Call, body: bytes, forward: Forward) -> Answer:
        """Answer a request by the rules and with moto's help; the front applies planned faults."""
        with self._lock:
            refusal = self.iam.refusal(call)
            found = refusal if refusal is not None else self._beside_ec2(call)
        if found is not None:
            return found
        if call.service != "ec2":
            # Without the lock: a long poll of a queue takes seconds.
            return forward(body)
        with self._lock:
            self._give_way_out(call.region)
            self._advance()
            if self.terms.throttles and not self._throttle.admits(call.operation):
                return ec2_error("RequestLimitExceeded", "Request limit exceeded.", 503)
            rule = getattr(self, f"_on_{call.operation}", None)
            if rule is not None:
                answer: Answer | None = rule(call, forward)
                if answer is not None:
                    return answer
            with self._invisible(call.region):
                return forward(body)

    def _beside_ec2(self, call: Call) -> Answer | None:
        """Answer calls that moto lacks, calls to nodes and to IAM; return None to leave a call to moto."""
        if call.service == "ssm" and self.nodes is not None:
            self._advance()
            return self.nodes.answer(
                call, self._lives, self._gpus_of, self.clock(), self.terms.boot_seconds
            ) or fake_side.other_service(self, call)
        if call.service == "scheduler" and call.operation == "CreateSchedule":
            return self.scheduler.create(call)
        if call.service == "sts" and call.operation == "GetCallerIdentity":
            return self.iam.identity(call)
        if call.service == "iam" and call.operation == "SimulatePrincipalPolicy":
            return self.iam.simulated(call)
        return None if call.service == "ec2" else fake_side.other_service(self, call)

    def _gpus_of(self, instance_type: str) -> int:
        entry = self.catalog.entries.get(instance_type)
        return 0 if entry is None else entry.gpus

    def _tags_of(self, region: str, name: str) -> Mapping[str, str]:
        """Return the tags of a resource."""
        tags: Mapping[str, str] = self.backend(region).tags.get(name, {})
        return tags

    def error(self, code: str, service: str = "ec2") -> Answer:
        """Return a planned error in the format of a service."""
        message = "You have requested more vCPU capacity than your current vCPU limit of 32 allows" if (
            code == "VcpuLimitExceeded") else f"planned: {code}"  # fmt: skip
        make = ec2_error if service in ("ec2", "sts", "iam") else fake_side.json_error
        return make(code, message, HTTP_STATUS.get(code, 400))

    def backend(self, region: str) -> Any:
        """Return moto's EC2 of a region, with one image."""
        ec2 = moto_backends.get_backend("ec2")[DEFAULT_ACCOUNT_ID][region]
        if not ec2.amis:
            ec2.amis[IMAGE] = Ami(ec2, IMAGE, name="an image", owner_id="amazon", architecture="x86_64")
        return ec2

    def _give_way_out(self, region: str) -> None:
        """Add the internet gateway of the default network, which moto lacks."""
        ec2 = self.backend(region)
        if region in self._with_way_out or ec2.internet_gateways:
            return
        self._with_way_out.add(region)
        default = next((vpc for vpc in ec2.vpcs.values() if vpc.is_default in (True, "true")), None)
        if default is not None:
            gateway = ec2.create_internet_gateway()
            ec2.attach_internet_gateway(gateway.id, default.id)
            table = next(each for each in ec2.route_tables.values() if each.vpc_id == default.id)
            ec2.create_route(table.id, "0.0.0.0/0", None, gateway_id=gateway.id)

    # EC2's rules that moto lacks, one method per operation; None leaves the call to moto.

    def _on_RunInstances(self, call: Call, forward: Forward) -> Answer | None:  # noqa: N802 - EC2's name
        """Launch: check token, dry run, permissions, parameters, quota and stock; launch what they allow."""
        zone = self.zone_of(call)
        token, query = call.query.get("ClientToken", ""), comparable(call.query)
        if (token, zone) in self._by_token:
            asked, answer = self._by_token[token, zone]
            if asked != query:
                return ec2_error("IdempotentParameterMismatch", "Arguments on this idempotent request differ")
            return answer
        no = refused(self, call, zone)
        if no is not None:
            return no
        most, least = int(call.query["MaxCount"]), int(call.query["MinCount"])
        granted, why = grant(self, call, zone, most)
        if granted < least:
            return why
        answer = forward(call.with_query(for_moto(call.query, granted)))
        if answer.status == 200:
            self._born(call, zone, [each.decode() for each in _IDS.findall(answer.body)])
            if token:
                self._by_token[token, zone] = (query, answer)
        return answer

    def _on_TerminateInstances(self, call: Call, forward: Forward) -> Answer | None:  # noqa: N802 - EC2's name
        """End all named instances or none: an unknown, protected or foreign one fails the call."""
        ids = call.numbered("InstanceId")
        for name in ids:
            life = self._lives.get(name)
            if life is None or self._is_invisible(life) or life.region != call.region:
                return ec2_error("InvalidInstanceID.NotFound", f"The instance ID '{name}' does not exist")
            cluster = self.terms.enforces_cluster
            if cluster and life.tags.get("boa:cluster") != cluster:
                return ec2_error(
                    "UnauthorizedOperation", "You are not authorized to perform this operation.", 403
                )
            if life.is_protected:
                return ec2_error("OperationNotPermitted", f"The instance '{name}' may not be terminated")
        if call.query.get("DryRun", "").lower() == "true":
            return self.error("DryRunOperation")
        answer = forward(call.with_query(call.query))
        now = self.clock()
        for name in ids:
            life = self._lives[name]
            if life.ended_at is None:
                life.ended_at, life.reason = now, f"User initiated ({reason_time(now)})"
                fake_side.send_event(self, life, "EC2 Instance State-change Notification", "shutting-down")
        self._advance()
        return answer

    def _on_StopInstances(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        """Stop on-demand instances; stopping a spot instance is recorded as forbidden."""
        if any(
            self._lives[name].market == "spot" for name in call.numbered("InstanceId") if name in self._lives
        ):
            self.forbidden.append(call.operation)
        answer = fake_stops.stop(self, call, self._lives, lambda: forward(call.with_query(call.query)))
        self._advance()
        return answer

    def _on_StartInstances(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        """Start instances that were stopped."""
        answer = fake_stops.start(self, call, self._lives, lambda: forward(call.with_query(call.query)))
        self._advance()
        return answer

    def _on_CreateImage(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        """Make an image of an instance's disk."""
        return fake_images.create(self, call, self._lives, forward)

    def _on_DescribeImages(self, call: Call, forward: Forward) -> None:  # noqa: N802 - EC2's name
        """Update the states of images."""
        fake_images.advance(self, call)

    def _on_DescribeSnapshots(self, call: Call, forward: Forward) -> None:  # noqa: N802 - EC2's name
        """Update the states of snapshots."""
        fake_images.advance(self, call)

    def _on_DeleteSnapshot(self, call: Call, forward: Forward) -> Answer | None:  # noqa: N802 - EC2's name
        """Refuse to delete the snapshot of an image."""
        return fake_images.delete_snapshot(self, call)

    def _on_DescribeSpotPriceHistory(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        """Return the prices from the start on, and the last price before it."""
        return fake_side.spot_history(self, call)

    def _on_DescribeInstanceStatus(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        """Return the status checks and scheduled events of running instances."""
        return fake_health.statuses(self, call, lambda life: self._state(life, self.clock())[0])

    def _on_DescribeInstanceTopology(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        """Return the network positions of instances; moto has none."""
        return fake_topology.topology(self, call)

    def _on_DescribeCapacityReservations(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        return fake_side.reservations(self, call)

    def _on_DescribeCapacityBlockOfferings(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        return fake_blocks.offerings(self, call)

    def _on_PurchaseCapacityBlock(self, call: Call, forward: Forward) -> Answer:  # noqa: N802 - EC2's name
        return fake_blocks.purchase(self, call)

    # Launching, step by step.

    def zone_of(self, call: Call) -> str:
        """Return the zone of a launch: the named one, or that of its subnet."""
        subnet = call.query.get("SubnetId") or call.query.get("NetworkInterface.1.SubnetId", "")
        if subnet:
            by_zone = self.backend(call.region).subnets.values()
            return next(
                (s.availability_zone for subnets in by_zone for s in subnets.values() if s.id == subnet), ""
            )
        return call.query.get("Placement.AvailabilityZone", "") if call.operation == "RunInstances" else ""

    def _born(self, call: Call, zone: str, ids: Sequence[str]) -> None:
        """Record new instances, and set the attributes that moto leaves out."""
        now = self.clock()
        launched = float(int(now))
        bid = float(call.query.get("InstanceMarketOptions.SpotOptions.MaxPrice", "inf"))
        profile = call.query.get("IamInstanceProfile.Name") or call.query.get("IamInstanceProfile.Arn", "")
        for name in ids:
            instance = self.backend(call.region).get_instance(name)
            instance.launch_time = datetime.fromtimestamp(launched, tz=UTC).replace(tzinfo=None)
            for card in instance.nics.values():
                card.delete_on_termination = True
                card.add_tags(call.tags("network-interface"))
            self._lives[name] = Lifetime(
                name, call.region, call.query["InstanceType"], zone or instance.availability_zone,
                market_of(call.query), call.tags(), launched, bid,
                profile=profile,
                fails_with=self.terms.launch_failures.get(call.query["InstanceType"], ""),
                is_reachable=self._is_reachable(call),
            )  # fmt: skip
        subnet = call.query.get("SubnetId", "")
        if subnet in self.terms.free_addresses:
            self.terms.free_addresses[subnet] -= len(ids)
        self._advance()

    def _is_reachable(self, call: Call) -> bool:
        """Return whether a node reaches AWS: with several interfaces it has no public address."""
        if "NetworkInterface.2.SubnetId" not in call.query:
            return True
        wanted = call.query["NetworkInterface.1.SubnetId"]
        subnets = [each for zone in self.backend(call.region).subnets.values() for each in zone.values()]
        return not any(
            each.id == wanted and each.map_public_ip_on_launch in (True, "true") for each in subnets
        )

    # Time.

    def spot_price(self, name: str, zone: str) -> float:
        """Return the spot price now; 0 if no path is set."""
        path = self.terms.spot_paths.get((name, zone), [])
        before = [usd for at, usd in path if at <= self.clock()]
        return before[-1] if before else 0.0

    def _advance(self) -> None:
        """Update moto's instances to the current time, and interrupt spot instances above their bid."""
        now = self.clock()
        for name in fake_blocks.over(self, now):
            self.end(name, "Server.CapacityBlockEnd")
        self.scheduler.advance(now, self._lives, self._tags_of)
        for life in self._lives.values():
            self._interrupt(life, now)
            if life.fails_to_start and now >= life.launched_at + self.terms.failing_seconds:
                life.stopped_at, life.reason = life.launched_at, life.fails_to_start
                life.fails_to_start = ""
            if life.fails_with and life.ended_at is None:
                fails_at = life.launched_at + self.terms.failing_seconds
                if now >= fails_at:
                    life.ended_at, life.reason = fails_at, life.fails_with
                    self._teardown(life)
            if self.nodes is not None and life.ended_at is not None:
                self.nodes.end(life.id)
        for region in {life.region for life in self._lives.values()}:
            for reservation in self.backend(region).reservations.values():
                reservation.instances = [each for each in reservation.instances if self._show(each, now)]

    def _show(self, instance: Any, now: float) -> bool:
        """Update one of moto's instances; return whether EC2 would still list it."""
        life = self._lives.get(instance.id)
        if life is None:
            return True
        instance._state.name, instance._state.code = self._state(life, now)
        instance._reason = life.reason
        code = (
            "Client.UserInitiatedShutdown"
            if life.reason.startswith("User")
            else life.reason.partition(":")[0]
        )
        instance.state_reason = StateReason(life.reason, code) if life.reason else StateReason()
        return life.ended_at is None or now - life.ended_at <= LISTED_AFTER_END_SECONDS

    def _interrupt(self, life: Lifetime, now: float) -> None:
        """Warn an outbid spot instance, and end it two minutes later."""
        if life.ended_at is not None or life.market != "spot":
            return
        if life.warned_at is None and self.spot_price(life.instance_type, life.zone) > life.max_usd_per_hour:
            self.warn(life.id)
        if life.warned_at is not None and now - life.warned_at >= self.terms.warning_seconds:
            life.ended_at = life.warned_at + self.terms.warning_seconds
            life.reason = "Server.SpotInstanceTermination: Spot instance termination"
            self._teardown(life)
            fake_side.send_event(self, life, "EC2 Instance State-change Notification", "shutting-down")

    def _state(self, life: Lifetime, now: float) -> tuple[str, int]:
        """Return the state of an instance, and its code."""
        if life.fails_with:
            return ("pending", 0) if life.ended_at is None else ("terminated", 48)
        if life.ended_at is not None:
            is_over = now - life.ended_at >= self.terms.shutdown_seconds
            return ("terminated", 48) if is_over else ("shutting-down", 32)
        if life.stopped_at is not None:
            return (
                ("stopped", 80) if now - life.stopped_at >= self.terms.shutdown_seconds else ("stopping", 64)
            )
        return ("running", 16) if now - life.launched_at >= self.terms.boot_seconds else ("pending", 0)

    def _teardown(self, life: Lifetime) -> None:
        """Free the disk and network of an instance that ends without a call."""
        self.backend(life.region).get_instance(life.id).terminate()

    def _is_invisible(self, life: Lifetime) -> bool:
        """Return whether listings do not show an instance yet."""
        return self.clock() - life.launched_at < self.terms.invisible_seconds

    @contextmanager
    def _invisible(self, region: str) -> Iterator[None]:
        """Hide instances that listings do not show yet."""
        hidden = {life.id for life in self._lives.values() if self._is_invisible(life)}
        kept = []
        for reservation in self.backend(region).reservations.values() if hidden else ():
            kept.append((reservation, reservation.instances))
            reservation.instances = [each for each in reservation.instances if each.id not in hidden]
        yield
        for reservation, instances in kept:
            reservation.instances = instances
