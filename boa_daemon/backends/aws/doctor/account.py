"""Check an AWS account before anything is rented: each failed check names its fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import queue_arn
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.doctor.check import DoctorCheck, Status
from boa_daemon.backends.aws.doctor.offers import OffersDoctor
from boa_daemon.backends.aws.doctor.rights import RightsDoctor
from boa_daemon.backends.aws.doctor.stack import StackDoctor
from boa_daemon.backends.aws.instances.launch import MOST_CLOCK_SKEW_SECONDS
from boa_daemon.backends.aws.instances.launch_request import CLUSTER_TAG, run_request
from boa_daemon.backends.aws.instances.node_from_instance import tags_of_instance
from boa_daemon.backends.aws.instances.termination_schedule import AFTER_SECONDS, most_usd
from boa_daemon.backends.aws.prices.extra_costs import HOURS_OF_A_MONTH, extras_of
from boa_daemon.backends.aws.rights.policy import sids_for
from boa_daemon.backends.aws.rights.policy_statements import NO_OTHER_RESOURCES, UsedResources, iam_action
from boa_daemon.backends.aws.rights.resource_policies import Queue
from boa_daemon.errors import BoaError
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.tick.facts.actions import LaunchNodes
from boa_daemon.tick.facts.node_lives import instance_of
from boa_daemon.tick.facts.offers import Offer
from boa_daemon.tick.facts.ports import Clock
from policies.money_text import in_dollars

ALARM_SKEW_SECONDS, LEAST_LETTER_DAYS = 60.0, 1.0


class Doctor:
    """Checks everything that a launch, an end and a warning need. Nothing is started or ended."""

    def __init__(
        self, cloud: AwsCloud, catalog: Catalog, clock: Clock, *, uses: UsedResources = NO_OTHER_RESOURCES
    ) -> None:
        self._cloud, self._settings, self._calls = cloud, cloud.settings, cloud.calls
        self._catalog, self._clock, self._uses = catalog, clock, uses
        self._rights, self._stack = RightsDoctor(self._calls, uses), StackDoctor(self._calls)
        self._offers = OffersDoctor(cloud, catalog, clock)

    def checks(self) -> Iterator[DoctorCheck]:
        """Yield the checks in order; if the credentials fail, no other check runs."""
        credentials = self._guarded("credentials", self._credentials)
        yield from credentials
        if any(check.status == "failed" for check in credentials):
            return
        for name, look in (
            ("clock", self._clocks),
            ("rights", self._rights.own),
            ("rights of others", self._rights.others),
            ("instance types", self._offers.types),
            ("subnets", self._offers.subnets),
            ("network", self._network),
            ("prices", self._offers.prices),
            ("quotas", self._offers.quotas),
            ("images", self._offers.images),
            ("disks", self._offers.disks),
            ("launch", self._launch),
            ("release", self._release),
            ("nodes", self._agents),
            ("warm pool", self._pool),
            ("queue", self._queue),
            ("reports", self._reports),
            ("bucket", self._bucket),
        ):
            yield from self._guarded(name, look)

    def _guarded(self, name: str, look: Callable[[], Iterator[DoctorCheck]]) -> Sequence[DoctorCheck]:
        """Return the checks of a group; a failed call becomes a failed check."""
        found: list[DoctorCheck] = []
        try:
            found.extend(look())
        except CallFailed as error:
            found.append(
                DoctorCheck(
                    name=name, status="failed", said=str(error).partition(". ")[0], fix=self._fix(error)
                )
            )
        except BoaError as error:
            found.append(DoctorCheck(name=name, status="failed", said=str(error)))
        return found

    def _credentials(self) -> Iterator[DoctorCheck]:
        """Report the caller's identity."""
        who = self._calls.call("sts:GetCallerIdentity")
        self._rights.caller, self._rights.account = str(who["Arn"]), str(who["Account"])
        yield DoctorCheck(name="credentials", status="ok", said=f"{who['Arn']} in account {who['Account']}")

    def _clocks(self) -> Iterator[DoctorCheck]:
        """Check our clock against AWS's: AWS refuses signatures of a wrong time."""
        skew = self._calls.clock_skew_seconds
        status: Status = "ok"
        if abs(skew) > ALARM_SKEW_SECONDS:
            status = "failed" if abs(skew) > MOST_CLOCK_SKEW_SECONDS else "warning"
        fix = "" if status == "ok" else "Set the clock: chronyd or systemd-timesyncd keeps it right"
        yield DoctorCheck(name="clock", status=status, said=f"{abs(skew):.0f} s from AWS's", fix=fix)

    def _fix(self, error: CallFailed) -> str:
        """Return the fix of a failed call: if it was denied, the statement that is missing."""
        if error.meaning != "denied":
            return error.hint
        action, resource = error.denied or (iam_action(error.operation), "*")
        sids = sids_for(self._rights.policy(), action, resource)
        return self._rights.fix(sids) if sids else error.hint

    def _network(self) -> Iterator[DoctorCheck]:
        """Check that nodes of each type reach SSM, S3 and SQS from each subnet."""
        if not self._settings.instance_profile:
            said = "nodes have no instance profile: nothing can be run on them, and nothing is checked"
            fix = "Let `boa up` make one, or name one under [cloud] instance_profile"
            yield DoctorCheck(name="network", status="warning", said=said, fix=fix)
            return
        zones = self._cloud.market.zones()
        for name in self._settings.instance_types:
            of_type = self._catalog.entry(name).efa_interfaces
            cards = of_type if self._settings.efa else 1
            here = [way for way in self._cloud.launcher.ways().values() if way.zone in zones.get(name, ())]
            wrong = [why for way in here if (why := way.why(max(cards, 1)))]
            fix = "" if not wrong else (
                "Name private subnets that route to a NAT gateway under [cloud] subnets (`boa up --private` "
                "makes them), add endpoints for the services"
                + (", or set [cloud] efa = false" if cards > 1 else "")
            )  # fmt: skip
            yield DoctorCheck(
                name=f"network {name}",
                status="ok" if not wrong else "failed" if len(wrong) == len(here) else "warning",
                said="; ".join(wrong) or f"{len(here)} subnets reach SSM, S3 and SQS",
                fix=fix,
            )
            if of_type:
                yield _efa(name, of_type, asks=self._settings.efa, subnets=len(here))

    def _launch(self) -> Iterator[DoctorCheck]:
        """Check with DryRun that we may launch with our tag and not with another cluster's."""
        offer = next((each for each in self._cloud.offers() if each.market != "reserved"), None)
        if offer is None:
            yield DoctorCheck(name="launch", status="skipped", said="nothing is offered")
            return
        own, foreign = self._dry_launch(offer, ours=True), self._dry_launch(offer, ours=False)
        yield DoctorCheck(
            name="launch with our tag",
            status="ok" if own is None else "failed",
            said="allowed" if own is None else f"{own.code}: {own.message}",
            fix="" if own is None else self._fix(own),
        )
        yield _foreign("launch with a foreign tag", foreign)

    def _dry_launch(self, offer: Offer, *, ours: bool) -> CallFailed | None:
        """Try a launch as DryRun; return why it is refused, None if it is allowed."""
        settings = self._settings if ours else self._settings.model_copy(update={"cluster": "not-ours"})
        action = LaunchNodes(
            id="doctor", instance_type=self._catalog.instance_type(offer.instance_type), reason="doctor"
        )
        request = run_request(
            action,
            offer,
            self._cloud.launcher.site(offer),
            settings,
            ledger_id="doctor",
            lease=self._clock.now(),
        )
        return self._dry("ec2:RunInstances", **request)

    def _release(self) -> Iterator[DoctorCheck]:
        """Check with DryRun that we may end our instances and no others, if there are any to try with."""
        instances = [
            instance
            for reservation in self._calls.pages("ec2:DescribeInstances", "Reservations", MaxResults=1000)
            for instance in reservation["Instances"]
            if instance["State"]["Name"] not in ("terminated", "shutting-down")
        ]
        ours = [
            each for each in instances if tags_of_instance(each).get(CLUSTER_TAG) == self._settings.cluster
        ]
        others = [each for each in instances if CLUSTER_TAG not in tags_of_instance(each)]
        if not ours:
            yield DoctorCheck(name="end ours", status="skipped", said="no such instance runs to test with")
        else:
            said = self._dry("ec2:TerminateInstances", InstanceIds=[ours[0]["InstanceId"]])
            yield DoctorCheck(
                name="end ours",
                status="ok" if said is None else "failed",
                said="allowed" if said is None else f"{said.code}: {said.message}",
                fix="" if said is None else self._fix(said),
            )
        if not others:
            yield DoctorCheck(
                name="end a foreign one", status="skipped", said="no such instance runs to test with"
            )
        else:
            name = others[0]["InstanceId"]
            yield _foreign("end a foreign one", self._dry("ec2:TerminateInstances", InstanceIds=[name]))

    def _agents(self) -> Iterator[DoctorCheck]:
        """Check that our running nodes are online in SSM; a node that is not cannot run jobs."""
        running = [node for node in self._cloud.nodes() if node.phase == "ready"]
        if not running:
            yield DoctorCheck(name="nodes", status="skipped", said="none runs")
            return
        rows = self._calls.pages("ssm:DescribeInstanceInformation", "InstanceInformationList")
        online = {row["InstanceId"] for row in rows if row.get("PingStatus") == "Online"}
        silent = sorted(node.id for node in running if instance_of(node.id) not in online)
        yield DoctorCheck(
            name="nodes",
            status="warning" if silent else "ok",
            said=f"not online in SSM: {', '.join(silent)}" if silent else f"{len(running)} are online in SSM",
            fix="Look at the checks of the network and at the nodes' instance profile" if silent else "",
        )

    def _pool(self) -> Iterator[DoctorCheck]:
        """Report the stopped nodes and their cost; nothing if there is no pool and nothing is stopped."""
        stopped = [node for node in self._cloud.nodes() if node.phase == "stopped"]
        room = self._settings.warm_pool_nodes
        if stopped or room:
            usd = sum(node.usd_per_hour for node in stopped)
            yield self._pool_end(room)
            yield DoctorCheck(
                name="warm pool",
                status="warning" if len(stopped) > room else "ok",
                said=f"{len(stopped)} of {room} stopped, {in_dollars(usd)}/hour for their disks",
                fix="A running daemon ends the surplus; `boa gc` ends nodes that no daemon wants"
                if len(stopped) > room
                else "",
            )

    def _pool_end(self, room: int) -> DoctorCheck:
        """Check that AWS ends stopped nodes if the daemon is gone for good; report their cost until then."""
        disk = dict(extras_of(self._settings))["disk"]
        if self._settings.pool_end_role:
            said = (
                f"without a daemon a stopped node ends {AFTER_SECONDS / 3600.0:.0f} h after its stop: "
                f"{in_dollars(most_usd(room, disk))} at the most for {room}"
            )
            return DoctorCheck(name="end of the warm pool", status="ok", said=said)
        month = room * disk * HOURS_OF_A_MONTH
        said = (
            "nothing on AWS's side ends a stopped node whose daemon is gone for good: "
            f"{in_dollars(month)} a month for {room}, until somebody types `boa gc`"
        )
        fix = "`boa up --yes` makes the role that does, and sets [cloud] pool_end_role"
        return DoctorCheck(name="end of the warm pool", status="warning", said=said, fix=fix)

    def _dry(self, operation: str, **arguments: Any) -> CallFailed | None:
        """Make a call as DryRun; return why it would be refused, None if it would be allowed."""
        try:
            self._calls.call(operation, **arguments, DryRun=True)
        except CallFailed as error:
            return None if error.meaning == "dry-run" else error
        return None

    def _queue(self) -> Iterator[DoctorCheck]:
        """Check the queue of warnings and the rules that fill it."""
        if not self._settings.queue_url:
            yield DoctorCheck(
                name="queue",
                status="warning" if "spot" in self._settings.markets else "skipped",
                said="[cloud] queue_url is not set: only the node itself sees spot warnings",
                fix="`boa up` makes one, and sets [cloud] queue_url",
            )
            return
        yield from self._queue_checks("queue", "warnings", self._settings.queue_url)
        yield from self._stack.rules(
            queue_arn(self._settings, self._settings.queue_url, self._rights.account)
        )

    def _reports(self) -> Iterator[DoctorCheck]:
        """Check the queue to which nodes report."""
        url = self._uses.reports_queue_url
        if url:
            yield from self._queue_checks("reports", "reports", url)

    def _queue_checks(self, name: str, queue: Queue, url: str) -> Iterator[DoctorCheck]:
        """Check how long a queue keeps messages and who may send to it."""
        answer = self._calls.call("sqs:GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
        facts = answer.get("Attributes", {})
        days = int(facts.get("MessageRetentionPeriod", "0")) / 86_400
        waiting = facts.get("ApproximateNumberOfMessages", "0")
        if days < LEAST_LETTER_DAYS:
            said = f"{url} keeps messages for {days:.2g} days: a daemon away for longer loses some"
            yield DoctorCheck(name=name, status="warning", said=said, fix="Set its retention to 14 days")
        else:
            yield DoctorCheck(name=name, status="ok", said=f"{url}, {waiting} messages wait")
        yield from self._rights.of_queue(queue, url, facts.get("Policy", ""))

    def _bucket(self) -> Iterator[DoctorCheck]:
        """Check that logs and checkpoints can be read, and the settings of their bucket."""
        if not self._uses.uri:
            return
        bucket, _, prefix = self._uses.uri.removeprefix("s3://").partition("/")
        start = f"{prefix.rstrip('/')}/" if prefix else ""
        self._calls.call("s3:ListObjectsV2", Bucket=bucket, Prefix=start, MaxKeys=1)
        yield DoctorCheck(name="bucket", status="ok", said=self._uses.uri)
        yield from self._rights.of_bucket()
        yield from self._stack.bucket(bucket)


def _efa(name: str, cards: int, *, asks: bool, subnets: int) -> DoctorCheck:
    """Return the check of a type's EFA cards: a node launched with cards must show all of them."""
    if asks and subnets:
        said = f"{cards} cards with EFA are asked for, and a node has to show them before a job runs there"
        return DoctorCheck(name=f"efa {name}", status="ok", said=said)
    why = "[cloud] efa is false" if not asks else "there is no subnet to put them in"
    said = f"launched without its {cards} EFA cards, which are not checked: {why}"
    return DoctorCheck(
        name=f"efa {name}",
        status="skipped" if not asks else "warning",
        said=said,
        fix="" if not asks else "Name a subnet under [cloud] subnets",
    )


def _foreign(name: str, refused: CallFailed | None) -> DoctorCheck:
    """Return the check of something that must be denied."""
    if refused is not None and refused.meaning == "denied":
        return DoctorCheck(name=name, status="ok", said="denied, as it should be")
    said = "allowed: the policy grants more than BOA needs" if refused is None else f"unclear: {refused.code}"
    return DoctorCheck(
        name=name, status="warning", said=said, fix="Attach the policy that `boa iam` prints, and no other"
    )
