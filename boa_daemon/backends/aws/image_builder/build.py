"""Build an image: rent a node, prepare it, stop it, keep its disk as an image, and end it.

The intent and the EC2 request are on disk before EC2 is called. An interrupted build continues when the same
command is typed again, and duplicates nothing: the launch has an idempotency token, the script a lock, and
the image a name.

The builder has the cluster's tag and a lease, as every node has: the daemon lists it, bills it, counts it in
the caps and gives it no work until the lease ends, and then sweeps it. The builder powers itself off, which
ends it, at the same instant. While it is stopped it cannot do so, and its disk costs money: EventBridge
Scheduler then ends it, with the role `pool_end_role`, once no image can need it any more.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import slug_of
from boa_daemon.backends.aws.image_builder.recipe import (
    BuilderGone,
    BuildFailed,
    BuildIntent,
    BuildResult,
    Recipe,
)
from boa_daemon.backends.aws.image_builder.script import image_contents, prepare_script
from boa_daemon.backends.aws.image_builder.state import BuildFile
from boa_daemon.backends.aws.instances.images import (
    BASE_TAG,
    HOLDS_TAG,
    IMAGE_TAG,
    NAME_TAG,
    OwnImage,
    outdated,
    own_images,
    remove,
)
from boa_daemon.backends.aws.instances.launch_request import BUILD_TAG
from boa_daemon.backends.aws.instances.termination_schedule import schedule_builder_termination
from boa_daemon.tick.facts.ports import Clock

LOOK_SECONDS, ONLINE_SECONDS, IMAGE_SECONDS = 5.0, 900.0, 5400.0
_GONE = ("shutting-down", "terminated")


class ImageBuilder:
    """Builds one image at a time; the state of the build is in a folder."""

    def __init__(
        self,
        calls: AwsCalls,
        folder: Path,
        clock: Clock,
        *,
        say: Callable[[str], None] = lambda sentence: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._calls, self._file, self._clock, self._say, self._sleep = (
            calls, BuildFile(folder), clock, say, sleep
        )  # fmt: skip

    def open_build(self) -> BuildIntent | None:
        """Return the interrupted build, if there is one.

        Raises:
            InputError: when its file cannot be read.
        """
        return self._file.read()

    def build(self, recipe: Recipe, request_of: Callable[[str, float], Mapping[str, Any]]) -> BuildResult:
        """Build an image, or continue an interrupted build. `request_of(build, lease)` is the launch request.

        Raises:
            CallFailed: when AWS refuses or cannot be reached; the next call continues the build.
            BuildFailed: when the node could not be prepared, or its image failed; the builder has ended.
        """
        begun = self._clock.now()
        intent = self.open_build()
        if intent is not None and begun >= intent.ends_at and not intent.holds:
            # The build ran out of time before the node was prepared: end what is left and begin anew.
            self._drop(intent)
            intent = None
        was_open = intent is not None
        if intent is None:
            intent = self._intent(recipe, request_of)
        else:
            self._say(f"continuing build {intent.build}")
        try:
            image = self._kept(intent)
        except BuilderGone:
            self._drop(intent)
            if not was_open:
                raise
            self._say("its builder is gone: starting again")
            return self.build(recipe, request_of)
        except BuildFailed:
            self._drop(intent)
            raise
        builders = self._end(intent.build)
        old = outdated(own_images(self._calls), keep=intent.recipe.keep, but=(image.id,))
        removed = remove(self._calls, old)
        self._file.forget()
        return BuildResult(
            image=image,
            builder=builders[0] if builders else intent.instance,
            removed=tuple(removed),
            seconds=self._clock.now() - begun,
        )

    def _intent(self, recipe: Recipe, request_of: Callable[[str, float], Mapping[str, Any]]) -> BuildIntent:
        """Write the intent of a new build to disk and return it."""
        build, ends_at = secrets.token_hex(6), self._clock.now() + 60.0 * recipe.minutes
        return self._file.write(
            BuildIntent(build=build, recipe=recipe, request=request_of(build, ends_at), ends_at=ends_at)
        )

    def _drop(self, intent: BuildIntent) -> None:
        """End the instances of a build and delete its file."""
        self._end(intent.build)
        self._file.forget()

    def _kept(self, intent: BuildIntent) -> OwnImage:
        """Return the image of a build once instances can be launched from it."""
        name = f"boa-{slug_of(self._calls.settings)}-{intent.build}"
        image = self._named(name)
        if image is None:
            intent = self._prepared(self._launched(intent))
            self._stopped(intent)
            image = self._make(intent, name)
        deadline = self._clock.now() + IMAGE_SECONDS
        while image.state != "available":
            if image.state != "pending" or self._clock.now() >= deadline:
                remove(self._calls, [image] if image.state != "pending" else [])
                raise BuildFailed(f"image {image.id} is {image.state}", code="ImageFailed")
            self._sleep(LOOK_SECONDS)
            image = self._named(name) or image
        return image

    def _named(self, name: str) -> OwnImage | None:
        return next(iter(own_images(self._calls, name=name)), None)

    def _launched(self, intent: BuildIntent) -> BuildIntent:
        """Launch the builder and return the intent with its instance; a repeated token launches no second."""
        if intent.instance:
            return intent
        try:
            answer = self._calls.call("ec2:RunInstances", **intent.request)
        except CallFailed as error:
            if error.meaning in ("unknown", "throttled"):
                raise
            raise BuildFailed(f"no builder could be rented: {error}", code=error.code) from error
        instance = str(answer["Instances"][0]["InstanceId"])
        self._say(f"builder {instance} is rented, until {_clock(intent.ends_at)} at the latest")
        return self._file.write(replace(intent, instance=instance))

    def _prepared(self, intent: BuildIntent) -> BuildIntent:
        """Run the script on the builder and return the intent with the contents of the disk."""
        if intent.holds:
            return intent
        self._until(
            lambda: self._is_online(intent.instance), ONLINE_SECONDS, intent, "did not come online in SSM"
        )
        recipe = intent.recipe
        script = prepare_script(
            intent.build, pip=recipe.pip, containers=recipe.containers, script=recipe.script
        )
        seconds = max(int(intent.ends_at - self._clock.now()), 60)
        command = self._calls.call(
            "ssm:SendCommand",
            InstanceIds=[intent.instance],
            DocumentName="AWS-RunShellScript",
            Comment=f"boa: image {intent.build}",
            TimeoutSeconds=60,
            Parameters={"commands": [script], "executionTimeout": [str(seconds)]},
        )["Command"]["CommandId"]
        self._say("preparing it")
        said: dict[str, Any] = {}

        def is_over() -> bool:
            said.clear()
            said.update(self._answer(command, intent.instance))
            return said.get("Status") not in ("Pending", "InProgress", "Delayed")

        self._until(is_over, seconds, intent, "was not prepared in time")
        holds = image_contents(str(said.get("StandardOutputContent", "")))
        if said["Status"] != "Success" or holds is None:
            tail = str(said.get("StandardErrorContent") or said.get("StandardOutputContent") or "").strip()
            raise BuildFailed(
                f"preparing the node ended {said['Status']}: {tail[-500:]}", code=str(said["Status"]),
                hint="The builder has ended; fix the cause and run the same command again",
            )  # fmt: skip
        return self._file.write(replace(intent, holds=holds))

    def _answer(self, command: str, instance: str) -> dict[str, Any]:
        """Return the result of a command; SSM may not list a command yet that it has just accepted."""
        try:
            return self._calls.call("ssm:GetCommandInvocation", CommandId=command, InstanceId=instance)
        except CallFailed as error:
            if error.code == "InvocationDoesNotExist":
                return {"Status": "Pending"}
            raise

    def _stopped(self, intent: BuildIntent) -> None:
        """Stop the builder, so that its disk is complete; schedule its end first if a role can end it."""
        if self._state(intent.instance) == "running":
            if self._calls.settings.pool_end_role:
                schedule_builder_termination(self._calls, intent.instance, at=intent.ends_at + IMAGE_SECONDS)
            self._calls.call("ec2:StopInstances", InstanceIds=[intent.instance])
        self._until(lambda: self._state(intent.instance) == "stopped", 600.0, intent, "did not stop")

    def _make(self, intent: BuildIntent, name: str) -> OwnImage:
        """Create the image and return it; an image of that name from an earlier attempt is used."""
        recipe = intent.recipe
        tags = {**self._calls.settings.tags} | {
            IMAGE_TAG: self._calls.settings.cluster,
            BUILD_TAG: intent.build,
            BASE_TAG: recipe.base,
            NAME_TAG: recipe.base_name,
            HOLDS_TAG: intent.holds,
            "Name": name,
        }
        listed = [{"Key": key, "Value": value} for key, value in tags.items()]
        self._say("keeping its disk as an image")
        try:
            self._calls.call(
                "ec2:CreateImage",
                InstanceId=intent.instance,
                Name=name,
                Description=f"BOA nodes of {self._calls.settings.cluster}",
                TagSpecifications=[{"ResourceType": kind, "Tags": listed} for kind in ("image", "snapshot")],
            )
        except CallFailed as error:
            if error.code != "InvalidAMIName.Duplicate":
                raise
        found: list[OwnImage] = []

        def is_listed() -> bool:
            found[:] = own_images(self._calls, name=name)
            return bool(found)

        self._until(is_listed, 300.0, intent, "has no image in the list", needs_builder=False)
        return found[0]

    def _end(self, build: str) -> list[str]:
        """End all live instances of a build, wait until none is left, and return their ids."""
        mine = [
            {"Name": f"tag:{BUILD_TAG}", "Values": [build]},
            {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]},
        ]
        ended: list[str] = []
        for _ in range(60):
            rows = self._calls.pages("ec2:DescribeInstances", "Reservations", Filters=mine)
            living = [each["InstanceId"] for row in rows for each in row["Instances"]]
            if not living:
                break
            self._calls.call("ec2:TerminateInstances", InstanceIds=living)
            ended += [name for name in living if name not in ended]
            self._sleep(LOOK_SECONDS)
        return ended

    def _is_online(self, instance: str) -> bool:
        rows = self._calls.pages("ssm:DescribeInstanceInformation", "InstanceInformationList")
        return any(row["InstanceId"] == instance and row.get("PingStatus") == "Online" for row in rows)

    def _state(self, instance: str) -> str:
        """Return the builder's state; a builder that is not listed yet is pending."""
        by_id = [{"Name": "instance-id", "Values": [instance]}]
        rows = self._calls.pages("ec2:DescribeInstances", "Reservations", Filters=by_id)
        states = [str(each["State"]["Name"]) for row in rows for each in row["Instances"]]
        return states[0] if states else "pending"

    def _until(
        self,
        is_so: Callable[[], bool],
        seconds: float,
        intent: BuildIntent,
        what: str,
        *,
        needs_builder: bool = True,
    ) -> None:
        """Poll until `is_so` returns true; `what` completes the error's sentence.

        Raises:
            BuildFailed: when the time is up, or the builder has ended.
        """
        deadline = self._clock.now() + seconds
        while not is_so():
            if needs_builder and self._state(intent.instance) in _GONE:
                raise BuilderGone(f"builder {intent.instance} ended before its disk was kept", code="Gone")
            if self._clock.now() >= deadline:
                raise BuildFailed(f"builder {intent.instance} {what} after {seconds:.0f} s", code="Timeout")
            self._sleep(LOOK_SECONDS)


def _clock(instant: float) -> str:
    return time.strftime("%H:%M UTC", time.gmtime(instant))
