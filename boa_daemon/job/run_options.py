"""The keys of a job file that reach the process unchanged: each is declared here, and nowhere else.

From this one declaration follow the key of the job file with its checks (`inputs/job_file.py`), its row in
the reference, who may see it (`daemon/jobs/job_visibility.py`), the field of a job's specification
(`tick/facts/job_spec.py`), that of a unit on its node (`job/unit.py`), and the forms of both on disk. A new
key is a field below, and the code where it has its effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

IMAGE_FORM = r"^(/[^\s:]+\.sif|(docker://)?[a-z0-9]+([._:/-][A-Za-z0-9_]+|__|-+)*(@sha256:[0-9a-f]{64})?)$"
"""A container image reference, or the path of an Apptainer image."""


def option(
    default: Any, said: str, *, is_public: bool = False, may_be_unset: bool = False, **rules: Any
) -> Any:
    """Return the field of an option.

    Args:
        default: its value where the job file does not have the key.
        said: its meaning with its unit, for the reference and for messages.
        is_public: whether everybody may see its value, and not only the job's user.
        may_be_unset: whether a job file may say null, which means the default.
        rules: what pydantic's `Field` checks, such as `ge` or `max_length`.
    """
    metadata = {"said": said, "is_public": is_public, "may_be_unset": may_be_unset, "rules": rules}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class RunOptions:
    """How a job's command runs on each of its nodes.

    `cpus` and `memory_gb` (10^9 bytes) are limits, 0 for none. `secrets` are references by variable name,
    `data` are sources by name. `result` names a file, relative to the working folder, that must exist at the
    end; if empty, none must. Files that match `artifacts` are kept at the end.
    """

    result: str = option("", "file that must exist at the end", max_length=4096)
    keep_checkpoints: int = option(2, "number of newest checkpoints to keep", is_public=True, ge=1, le=100)
    image: str = option(
        "", "container image that the job runs in", may_be_unset=True, max_length=500, pattern=IMAGE_FORM
    )
    cpus: float = option(0.0, "cores that the job may use on a node", is_public=True, may_be_unset=True)
    memory_gb: float = option(
        0.0, "10^9 bytes of memory that the job may use on a node", is_public=True, may_be_unset=True
    )
    artifacts: Sequence[str] = option(
        (), "patterns of files to keep when the job ends by itself", max_length=100
    )
    secrets: Mapping[str, str] = option(
        {},
        "variables whose values are not in this file: env:NAME of the daemon's secret store, "
        "ssm:/PATH or secretsmanager:ARN",
    )
    data: Mapping[str, str] = option(
        {},
        "s3://BUCKET/PREFIX or a folder, or several by name, copied to the nodes and read-only",
        may_be_unset=True,
    )

    @property
    def has_limits(self) -> bool:
        """Whether there is a limit that a node has to enforce."""
        return bool(self.cpus or self.memory_gb)

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, for another object that has them."""
        return {each.name: plain(getattr(self, each.name)) for each in fields(RunOptions)}


_TYPES = {
    "str": str, "int": int, "float": float, "bool": bool, "Mapping[str, str]": dict,
    "Sequence[str]": tuple, "tuple[str, ...]": tuple,
}  # fmt: skip


def stated(kind: type[Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass that a job's content states, as their types; null states nothing."""
    return {
        each.name: _TYPES[each.type](content[each.name])  # type: ignore[index]
        for each in fields(kind)
        if content.get(each.name) is not None
    }


def run_options(content: Mapping[str, Any]) -> RunOptions:
    """Return the options that a job's content, or a unit's document, states."""
    return RunOptions(**stated(RunOptions, content))


def default_of(option: Field[Any]) -> Any:
    """Return the default of a field of a dataclass; `MISSING` if it must be given."""
    return option.default if option.default_factory is MISSING else option.default_factory()


def plain(value: Any) -> Any:
    """Return a value as one that can be copied and written as JSON."""
    return dict(value) if isinstance(value, Mapping) else value
