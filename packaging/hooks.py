"""Build hooks of the three distributions that this tree makes: boa-job, boa-client and boa-daemon.

The requirements of each are the dependency group of its name in the main `pyproject.toml`. `boa-client` and
`boa-daemon` need `boa-job` of the same version. `pip install .` takes the one in the checkout, which may not
be published and is never of another version. A build for others states its date, as reproducible builds do
(SOURCE_DATE_EPOCH), and names the version alone; so does a build from a source archive.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

TREE = Path(__file__).resolve().parent.parent


def requirements(group: str, version: str) -> list[str]:
    """Return the requirements of a group of the main `pyproject.toml`, and of `boa-job`."""
    groups = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]

    def flat(name: str) -> list[str]:
        return [
            line
            for item in groups[name]
            for line in ([item] if isinstance(item, str) else flat(item["include-group"]))
        ]

    job = TREE / "packaging" / "job"
    is_for_others = "SOURCE_DATE_EPOCH" in os.environ or (TREE / "PKG-INFO").exists()
    helper = f"boa-job=={version}" if is_for_others else f"boa-job @ {job.as_uri()}"
    return sorted([helper, *flat(group)])


class Requirements(MetadataHookInterface):
    """Fills in `dependencies`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the requirements of the distribution's group, which the hook's settings name."""
        metadata["dependencies"] = requirements(self.config["group"], metadata["version"])


class Files(BuildHookInterface[Any]):
    """Adds the files of this tree to a distribution whose `pyproject.toml` lies elsewhere."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders that the hook's settings name, less those that they leave out."""
        left_out = [TREE / folder for folder in self.config.get("except", [])]
        for folder in self.config["folders"]:
            for path in sorted((TREE / folder).rglob("*")):
                is_cache = "__pycache__" in path.parts
                if path.is_file() and not is_cache and not any(path.is_relative_to(out) for out in left_out):
                    build_data["force_include"][str(path)] = path.relative_to(TREE).as_posix()
