"""The file with the intent of an image build: written before EC2 is called, deleted when the build ends."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from boa_daemon.backends.aws.image_builder.recipe import BuildIntent, Recipe
from boa_daemon.errors import InputError
from boa_daemon.job.whole_files import write_whole

STATE_FILE = "image-build.json"


class BuildFile:
    """The file of the one unfinished build that a folder can have."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / STATE_FILE

    def read(self) -> BuildIntent | None:
        """Return the interrupted build, if there is one.

        Raises:
            InputError: when the file cannot be read: an instance may be rented that only the file knows.
        """
        try:
            document = json.loads(self._file.read_text(encoding="utf-8"))
            recipe = document.pop("recipe")
            lists = {key: tuple(recipe[key]) for key in ("pip", "containers")}
            return BuildIntent(recipe=Recipe(**recipe | lists), **document)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"the intent of a build cannot be read: {error}", file=self._file,
                hint="`boa gc` ends a builder whose lease is over; then remove the file",
            ) from error  # fmt: skip

    def write(self, intent: BuildIntent) -> BuildIntent:
        """Write an intent to disk, synced, and return it."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._file, json.dumps(asdict(intent)))
        return intent

    def forget(self) -> None:
        """Delete the file: the build is over."""
        self._file.unlink(missing_ok=True)
