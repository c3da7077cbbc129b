"""Building an image: a node is rented, prepared, stopped and its disk kept; then it ends.

The intent, with the request as EC2 gets it, is on disk before EC2 is asked, and its token answers a second
asking with the same instance. So a build that was cut off anywhere is gone on with by typing the same again,
and asks for nothing twice: an instance by its token, the script by its own lock, an image by its name.

The builder bears the cluster's tag and a lease, as every node does: the daemon lists it, bills it and counts
it in the caps until the lease ends, gives it no work, and sweeps it when the lease is over. It powers itself
off, which ends it, at the same instant. While it is stopped it cannot, and costs its disk: EventBridge
Scheduler ends it then, with the role of the warm pool's end, once no image can need it any more.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from boa_daemon.backends.aws.calls import AwsCalls
from boa_daemon.backends.aws.errors import CallFailed
from boa_daemon.backends.aws.image_recipe import BuilderGone, BuildFailed, BuildIntent, BuildResult, Recipe
from boa_daemon.backends.aws.image_script import image_contents, prepare_script
from boa_daemon.backends.aws.image_state import BuildFile
from boa_daemon.backends.aws.images import (
    BASE_TAG,
    HOLDS_TAG,
    IMAGE_TAG,
    NAME_TAG,
    OwnImage,
    outdated,
    own_images,
    remove,
)
from boa_daemon.backends.aws.launch_request import BUILD_TAG
from boa_daemon.backends.aws.resource_names import slug_of
from boa_daemon.backends.aws.termination_schedule import schedule_builder_termination
from boa_daemon.tick.ports import Clock

LOOK_SECONDS, ONLINE_SECONDS, IMAGE_SECONDS = 5.0, 900.0, 5400.0
_GONE = ("shutting-down", "terminated")


class ImageBuilder:
    """Builds one image at a time; its state is in a folder."""

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
        """Return the build that was cut off, if there is one.

        Raises:
            InputError: when its file cannot be read.
        """
        return self._file.read()

    def build(self, recipe: Recipe, request_of: Callable[[str, float], Mapping[str, Any]]) -> BuildResult:
        """Build an image, or go on with the build that was cut off. `request_of(build, lease)` is the launch.

        Raises:
            CallFailed: when AWS refuses, or cannot be asked: then the same goes on from there.
            BuildFailed: when the node could not be prepared, or its image failed; the builder has ended.
        """
        begun = self._clock.now()
        intent = self.open_build()
        if intent is not None and begun >= intent.ends_at and not intent.holds:
            # Its time was over before it was done: what is left of it ends, and it begins anew.
            self._drop(intent)
            intent = None
        was_open = intent is not None
        if intent is None:
            intent = self._intent(recipe, request_of)
        else:
            self._say(f"going on with build {intent.build}")
        try:
            image = self._kept(intent)
        except BuilderGone:
            self._drop(intent)
            if not was_open:
                raise
            self._say("its builder is gone: beginning anew")
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
        """Return a new build's intent, on disk."""
        build, ends_at = secrets.token_hex(6), self._clock.now() + 60.0 * recipe.minutes
        return self._file.write(
            BuildIntent(build=build, recipe=recipe, request=request_of(build, ends_at), ends_at=ends_at)
        )

    def _drop(self, intent: BuildIntent) -> None:
        """End what a build has rented, and forget it."""
        self._end(intent.build)
        self._file.forget()

    def _kept(self, intent: BuildIntent) -> OwnImage:
        """Return the image of a build once it can be launched from."""
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
        """Return the image of a name."""
        return next(iter(own_images(self._calls, name=name)), None)

    def _launched(self, intent: BuildIntent) -> BuildIntent:
        """Return the intent with its instance: EC2 answers the same token with the same one."""
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
        """Return the intent once the script came to its end on the builder."""
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
                hint="The builder has ended; mend that, and type the same again",
            )  # fmt: skip
        return self._file.write(replace(intent, holds=holds))

    def _answer(self, command: str, instance: str) -> dict[str, Any]:
        """Return what became of a command; SSM may not know one yet that it has just taken."""
        try:
            return self._calls.call("ssm:GetCommandInvocation", CommandId=command, InstanceId=instance)
        except CallFailed as error:
            if error.code == "InvocationDoesNotExist":
                return {"Status": "Pending"}
            raise

    def _stopped(self, intent: BuildIntent) -> None:
        """Stop the builder: what is written is on the disk then. Where a role may end it, it will."""
        if self._state(intent.instance) == "running":
            if self._calls.settings.pool_end_role:
                schedule_builder_termination(self._calls, intent.instance, at=intent.ends_at + IMAGE_SECONDS)
            self._calls.call("ec2:StopInstances", InstanceIds=[intent.instance])
        self._until(lambda: self._state(intent.instance) == "stopped", 600.0, intent, "did not stop")

    def _make(self, intent: BuildIntent, name: str) -> OwnImage:
        """Ask for the image; one of that name that is there already is the one."""
        recipe = intent.recipe
        tags = {
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
        """End every instance of a build that lives, and look until none does."""
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
        """Whether SSM reaches the builder."""
        rows = self._calls.pages("ssm:DescribeInstanceInformation", "InstanceInformationList")
        return any(row["InstanceId"] == instance and row.get("PingStatus") == "Online" for row in rows)

    def _state(self, instance: str) -> str:
        """Return the builder's state; a new one may not be listed yet."""
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
        """Look until something is so.

        Raises:
            BuildFailed: when it is not in time, or the builder is gone.
        """
        deadline = self._clock.now() + seconds
        while not is_so():
            if needs_builder and self._state(intent.instance) in _GONE:
                raise BuilderGone(f"builder {intent.instance} ended before its disk was kept", code="Gone")
            if self._clock.now() >= deadline:
                raise BuildFailed(f"builder {intent.instance} {what} after {seconds:.0f} s", code="Timeout")
            self._sleep(LOOK_SECONDS)


def _clock(instant: float) -> str:
    """Return an instant as the hour of the day."""
    return time.strftime("%H:%M UTC", time.gmtime(instant))
