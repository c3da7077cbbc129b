"""Tasks of SkyPilot and dstack as job files: what is meant, what is ignored, and what is refused, by line.

`TASKS` is the table of kinds. What changes what a job computes or may reach is meant or refused; what says
where and how to rent is ignored, since the daemon decides it. The width is the task's: nodes x GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.document_file import Document, KeyPath
from boa_daemon.number_text import number_readings

Verdict: TypeAlias = Literal["meant", "ignored", "refused"]

_RENTING = "the daemon decides where and how to rent"
_SIZES = "the daemon decides which machine, and nodes have the disks of their settings"
_HOST = "a job gets the cores and memory of its GPUs; cpus and memory_gb of a job file limit them"
_OTHER = "tpu", "inferentia", "trainium", "gaudi", "neuron"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of a key: its path, its line, and why."""

    key: str
    line: int | None
    verdict: Verdict
    why: str

    def to_document(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return {"key": self.key, "line": self.line, "verdict": self.verdict, "why": self.why}


@dataclass(slots=True, kw_only=True)
class Translation:
    """The content of a job file so far, and what became of each key of the task."""

    document: Document
    content: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def say(self, verdict: Verdict, at: KeyPath, why: str) -> None:
        """Record what became of a key."""
        key = ".".join(str(part) for part in at)
        self.findings.append(Finding(key=key, line=self.document.line_of(at), verdict=verdict, why=why))

    def mean(self, at: KeyPath, key: str, value: Any) -> None:
        """Set a key of the job file, and record from where."""
        self.content[key] = value
        shown = f": {value}" if isinstance(value, int | float | str) and len(str(value)) < 40 else ""
        self.say("meant", at, f"{key}{shown}" if "\n" not in shown else key)

    @property
    def refused(self) -> list[Finding]:
        """The findings that keep the task from being submitted."""
        return [one for one in self.findings if one.verdict == "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """A kind of task: its translation, and its row of the page."""

    translate: Callable[[Translation, Mapping[str, Any]], None]
    file: str
    meant: str
    ignored: str
    refused: str
    example: str


def translate(document: Document, kind: str, *, class_name: str | None) -> Translation:
    """Return a task as the content of a job file, with what became of each key.

    Raises:
        InputError: when the file is no task of this kind, with file and line.
    """
    if not isinstance(document.content, Mapping):
        raise document.error(f"a task of {kind} is a mapping", hint="Give the YAML file of one task")
    found = Translation(document=document)
    TASKS[kind].translate(found, document.content)
    if "run" not in found.content and not found.refused:
        found.say("refused", (), "there is nothing to run")
    if class_name is not None:
        found.content["class"] = class_name
    if "name" not in found.content:
        found.content["name"] = re.sub(
            r"[^A-Za-z0-9_.-]+", "-", document.name.rsplit("/", 1)[-1].partition(".")[0]
        )
    return found


def _sky(found: Translation, task: Mapping[str, Any]) -> None:
    """Translate a task of SkyPilot."""
    for key, value in task.items():
        at: KeyPath = (str(key),)
        if value is None:
            continue
        if key == "name":
            _word(found, at, "name", value)
        elif key in ("run", "setup"):
            _text(found, at, key, value)
        elif key == "workdir":
            if isinstance(value, Mapping):
                found.say("refused", at, "a workdir of git: clone it, and name the folder")
            else:
                _word(found, at, "code", value)
        elif key == "envs":
            _environment(found, at, value)
        elif key == "resources":
            _sky_resources(found, value, task.get("num_nodes"))
        elif key == "num_nodes":
            found.say("meant", at, "nodes x GPUs are the width")
        elif key == "secrets":
            found.say("refused", at, "values do not belong here: name references under secrets of a job file")
        elif key in ("file_mounts", "storage_mounts", "volumes"):
            found.say("refused", at, "write data: s3://BUCKET/PREFIX, or code, in a job file")
        elif key in ("service", "pool", "inputs", "outputs"):
            found.say("refused", at, "a job trains: it is no service and no pipeline")
        elif key in (
            "config",
            "experimental",
            "event_callback",
            "file_mounts_mapping",
            "_metadata",
            "api_server",
        ):
            found.say("ignored", at, "it is about SkyPilot itself")
        else:
            found.say("refused", at, f"unknown key. {did_you_mean(str(key), _SKY_KEYS)}".strip())
    if task.get("resources") is None:
        found.say("refused", (), "no resources.accelerators: a job of BOA has GPUs")
    _translate_variables(found, _SKY_VARIABLES)


_SKY_KEYS = (
    *("name", "workdir", "num_nodes", "resources", "envs", "secrets", "file_mounts", "setup", "run"),
    *("service", "volumes", "config", "event_callback"),
)
_SKY_RENTING = (
    *("cloud", "infra", "region", "zone", "instance_type", "use_spot", "spot_recovery", "job_recovery"),
    *("any_of", "ordered", "max_hourly_cost", "priority", "labels", "autostop", "local_disk"),
)
_SKY_SIZES = ("disk_size", "disk_tier", "network_tier")


def _sky_resources(found: Translation, resources: Any, nodes: Any) -> None:
    if not isinstance(resources, Mapping):
        found.say("refused", ("resources",), "it must be a mapping")
        return
    # `gpus` is SkyPilot's other name for accelerators.
    name = (
        "gpus"
        if resources.get("accelerators") is None and resources.get("gpus") is not None
        else "accelerators"
    )
    for key, value in resources.items():
        at: KeyPath = ("resources", str(key))
        if value is None:
            continue
        if key in ("accelerators", "gpus"):
            if key == name:
                _width(found, at, _sky_gpus(found, at, value), nodes, "num_nodes")
            elif value != resources[name]:
                found.say("refused", at, f"{name} says {resources[name]!r}")
        elif key in ("any_of", "ordered"):
            _sky_choices(found, at, value, common=resources.get(name), nodes=nodes)
        elif key in ("cpus", "memory"):
            found.say("ignored", at, _HOST)
        elif key == "image_id":
            _sky_image(found, at, value)
        elif key == "ports":
            found.say("ignored", at, "nodes open no ports: `boa port-forward` reaches one")
        elif key in _SKY_RENTING:
            found.say("ignored", at, _RENTING)
        elif key in _SKY_SIZES:
            found.say("ignored", at, _SIZES)
        else:
            known = (
                "accelerators",
                "gpus",
                "cpus",
                "memory",
                "image_id",
                "ports",
                *_SKY_RENTING,
                *_SKY_SIZES,
            )
            found.say("refused", at, f"unknown key. {did_you_mean(str(key), known)}".strip())
    if not resources.get(name) and not {"any_of", "ordered"} & resources.keys():
        found.say("refused", ("resources",), "no accelerators: a job of BOA has GPUs")


def _sky_choices(found: Translation, at: KeyPath, choices: Any, *, common: Any, nodes: Any) -> None:
    """Ignore where to rent; choices with GPUs have one number of them, which is the task's."""
    own = [
        gpus
        for one in (choices if isinstance(choices, list) else [])
        if isinstance(one, Mapping) and (gpus := one.get("accelerators", one.get("gpus"))) is not None
    ]
    if not own and common is not None:
        found.say("ignored", at, _RENTING)
        return
    if not own:
        found.say("refused", at, "no accelerators: a job of BOA has GPUs")
        return
    everything = own if common is None else [common, *own]
    counts = {_sky_gpus(Translation(document=found.document), at, gpus) for gpus in everything}
    if len(counts) > 1 or None in counts or (common is None and len(own) != len(choices)):
        found.say("refused", at, f"one number of GPUs for every choice; got {everything!r}")
    elif common is None:
        _width(found, at, counts.pop(), nodes, "num_nodes")
    else:
        found.say("ignored", at, _RENTING)


def _sky_gpus(found: Translation, at: KeyPath, value: Any) -> int | None:
    """Return the GPUs of a node: ``A100:8``, ``{A100: 8}``, or a list of choices with one number."""
    choices = list(value) if isinstance(value, list) else [value]
    if isinstance(value, Mapping):
        choices = [f"{name}:{1 if number is None else number}" for name, number in value.items()]
    counts = set()
    for choice in choices:
        name, _, number = str(choice).partition(":")
        if name.lower().startswith(_OTHER):
            found.say("refused", at, f"{name} is no GPU")
            return None
        if not re.search(r"[^\W\d]", name):
            found.say("refused", at, f"a GPU and how many, such as A100:8; got {value!r}")
            return None
        counts.add(_whole(number) if number else 1)
    if len(counts) != 1 or None in counts:
        found.say("refused", at, f"a whole number of GPUs, the same for every choice; got {value!r}")
        return None
    names = ", ".join(sorted({str(choice).partition(":")[0] for choice in choices}))
    found.say("ignored", at, f"{names}: the class of the job says on which GPUs it runs")
    return next(iter(counts))


def _sky_image(found: Translation, at: KeyPath, value: Any) -> None:
    if isinstance(value, str) and value.startswith("docker:"):
        found.mean(at, "image", value.removeprefix("docker:"))
    else:
        found.say("ignored", at, "an image of a machine: [cloud] of the settings names it")


def _dstack(found: Translation, task: Mapping[str, Any]) -> None:
    """Translate a task of dstack."""
    if task.get("type") != "task":
        found.say("refused", ("type",), f"only `type: task` is a job; got {task.get('type')!r}")
    nodes = task.get("nodes")
    for key, value in task.items():
        at: KeyPath = (str(key),)
        if value is None or key == "type":
            continue
        if key == "name":
            _word(found, at, "name", value)
        elif key == "commands":
            lines = value if isinstance(value, list) else [value]
            if not all(isinstance(line, str) for line in lines):
                found.say("refused", at, "commands are texts")
            else:
                # dstack runs its commands one after the other, and stops at the first that fails.
                _text(found, at, "run", "set -e\n" + "\n".join(lines))
        elif key == "env":
            _environment(found, at, value)
        elif key == "resources":
            _dstack_resources(found, value, nodes)
        elif key == "nodes":
            found.say("meant", at, "nodes x GPUs are the width")
        elif key == "image":
            _word(found, at, "image", value)
        elif key == "working_dir":
            _word(found, at, "workdir", value)
        elif key == "max_duration":
            _duration(found, at, "max_hours", value, 3600.0)
        elif key == "stop_duration":
            _duration(found, at, "stop_grace_seconds", value, 1.0)
        elif key in ("python", "nvcc"):
            found.say("ignored", at, "images are yours: name one with image")
        elif key in ("repos", "files"):
            found.say("ignored", at, "the folder of the file is copied as code")
        elif key == "ports":
            found.say("ignored", at, "nodes open no ports: `boa port-forward` reaches one")
        elif key in _DSTACK_RENTING:
            found.say("ignored", at, _RENTING)
        elif key in ("volumes", "registry_auth", "docker", "entrypoint", "schedule", "privileged"):
            found.say("refused", at, "BOA has no counterpart")
        else:
            found.say("refused", at, f"unknown key. {did_you_mean(str(key), _DSTACK_KEYS)}".strip())
    if task.get("resources") is None:
        found.say("refused", (), "no resources.gpu: a job of BOA has GPUs")
    found.content.setdefault("code", ".")
    _translate_variables(found, _DSTACK_VARIABLES)


_DSTACK_RENTING = (
    *("backends", "regions", "availability_zones", "instance_types", "spot_policy", "max_price", "retry"),
    *("idle_duration", "creation_policy", "fleets", "reservation", "utilization_policy", "priority", "tags"),
    *("single_branch", "user", "shell", "startup_order", "stop_criteria", "instances"),
)
_DSTACK_KEYS = (
    *(
        "type",
        "name",
        "commands",
        "env",
        "resources",
        "nodes",
        "image",
        "working_dir",
        "max_duration",
        "python",
    ),
    *("ports", "volumes", "files", "repos", *_DSTACK_RENTING),
)


def _dstack_resources(found: Translation, resources: Any, nodes: Any) -> None:
    if not isinstance(resources, Mapping):
        found.say("refused", ("resources",), "it must be a mapping")
        return
    for key, value in resources.items():
        at: KeyPath = ("resources", str(key))
        if key == "gpu":
            _width(found, at, _dstack_gpus(found, at, value), nodes, "nodes")
        elif key in ("cpu", "memory"):
            found.say("ignored", at, _HOST)
        elif key in ("disk", "shm_size"):
            found.say("ignored", at, _SIZES)
        else:
            known = ("gpu", "cpu", "memory", "disk", "shm_size")
            found.say("refused", at, f"unknown key. {did_you_mean(str(key), known)}".strip())
    if resources.get("gpu") is None:
        found.say("refused", ("resources",), "no gpu: a job of BOA has GPUs")


def _dstack_gpus(found: Translation, at: KeyPath, value: Any) -> int | tuple[int, int] | None:
    """Return the GPUs of a node: ``8``, ``A100:8``, ``24GB:2``, ``H100:1..2`` or {name, count, memory}."""
    count: Any = 1
    if isinstance(value, Mapping):
        count = value.get("count", 1)
        if isinstance(count, Mapping) and set(count) <= {"min", "max"}:
            count = "..".join(str(count.get(end) or "") for end in ("min", "max"))
        rest = [str(key) for key in value if key != "count"]
    else:
        parts = str(value).split(":")
        rest = [part for part in parts if not re.fullmatch(r"\d+(\.\.\d*)?|\.\.\d+", part)]
        count = next((part for part in parts if part not in rest), 1)
    low, dots, high = str(count).partition("..")
    numbers = (_whole(low or "1"), _whole(high or low) if dots else _whole(low))
    if numbers[0] is None or numbers[1] is None or numbers[0] > numbers[1]:
        found.say("refused", at, f"a number of GPUs, or a range such as 1..8; got {count!r}")
        return None
    if rest:
        said = ", ".join(rest)
        found.say("ignored", at, f"{said}: the class of the job says on which GPUs it runs")
    return numbers[0], numbers[1]


def _width(found: Translation, at: KeyPath, gpus: int | tuple[int, int] | None, nodes: Any, key: str) -> None:
    """Set the width of a job: GPUs of a node x nodes."""
    if gpus is None:
        return
    number = 1 if nodes is None else _whole(str(nodes))
    if number is None:
        found.say("refused", (key,), f"a whole number of nodes; got {nodes!r}")
        return
    low, high = gpus if isinstance(gpus, tuple) else (gpus, gpus)
    found.content["min_gpus"], found.content["max_gpus"] = low * number, high * number
    said = str(low * number) if low == high else f"{low * number} to {high * number}"
    found.say("meant", at, f"min_gpus and max_gpus: {said}")


def _word(found: Translation, at: KeyPath, key: str, value: Any) -> None:
    """Set a name or a path as it was typed: ``1.10`` is no number here."""
    if isinstance(value, Mapping | list):
        found.say("refused", at, "it must be text")
    else:
        found.mean(at, key, value if isinstance(value, str) else found.document.typed(at) or str(value))


def _text(found: Translation, at: KeyPath, key: str, value: Any) -> None:
    if isinstance(value, str) and "${{" in value:
        found.say("refused", at, "a part of it is filled in by its tool: write what is meant")
    elif isinstance(value, str) and value.strip():
        found.content[key] = value
        found.say("meant", at, key)
    else:
        found.say("refused", at, "it must be text")


def _environment(found: Translation, at: KeyPath, value: Any) -> None:
    """Set the variables: a mapping, or a list of ``NAME=VALUE``."""
    pairs: dict[str, Any] = {}
    if isinstance(value, list):
        for item in value:
            name, equals, text = str(item).partition("=")
            pairs[name] = text if equals else None
    elif isinstance(value, Mapping):
        pairs = {str(name): text for name, text in value.items()}
    else:
        found.say("refused", at, "it must be a mapping, or a list of NAME=VALUE")
        return
    kept: dict[str, str] = {}
    for name, text in pairs.items():
        where: KeyPath = (*at, name) if isinstance(value, Mapping) else at
        typed = found.document.typed(where) if isinstance(value, Mapping) else None
        if text is None:
            found.say("refused", where, f"{name} has no value: it is a secret, or comes from your shell")
        elif isinstance(text, str) and "${{" in text:
            found.say("refused", where, f"{name} is filled in by its tool: name a reference under secrets")
        elif isinstance(text, Mapping | list):
            found.say("refused", where, f"{name} must be text")
        else:
            kept[name] = text if isinstance(text, str) else typed or str(text)
    if kept:
        found.content["environment"] = kept
        found.say("meant", at, f"environment: {', '.join(kept)}")


def _duration(found: Translation, at: KeyPath, key: str, value: Any, unit: float) -> None:
    """Set a duration such as ``2h`` or seconds, in `unit` seconds."""
    if value == "off" or value is False:
        found.say("meant", at, "no limit")
        return
    match = re.fullmatch(r"(\d{1,12})\s*([smhdw]?)", str(value).strip(), re.ASCII)
    if match is None:
        found.say("refused", at, f"a duration such as 2h; got {value!r}")
        return
    seconds = int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[match[2]]
    found.mean(at, key, seconds / unit)


def _whole(text: str) -> int | None:
    """Return a whole number, 1 or more; None for other texts. 8.0 counts as 8."""
    readings = number_readings(text)
    if len(readings) != 1:
        return None
    value = float(readings[0])
    return int(value) if 1 <= value < 1e6 and value == int(value) else None


_SKY_VARIABLES: Mapping[str, str | None] = {
    "SKYPILOT_NODE_RANK": "$BOA_NODE_RANK",
    "SKYPILOT_NUM_NODES": "$BOA_NODES",
    "SKYPILOT_NUM_GPUS_PER_NODE": "$BOA_GPUS_PER_NODE",
    "SKYPILOT_TASK_ID": "$BOA_JOB_ID",
    "SKYPILOT_INTERNAL_JOB_ID": "$BOA_JOB_ID",
    "SKYPILOT_NODE_IPS": None,
}
_DSTACK_VARIABLES: Mapping[str, str | None] = {
    "DSTACK_NODE_RANK": "$BOA_NODE_RANK",
    "DSTACK_NODES_NUM": "$BOA_NODES",
    "DSTACK_GPUS_PER_NODE": "$BOA_GPUS_PER_NODE",
    "DSTACK_GPUS_NUM": "$BOA_GPUS",
    "DSTACK_MASTER_NODE_IP": "$MASTER_ADDR",
    "DSTACK_RUN_NAME": "$BOA_JOB_ID",
    "DSTACK_NODES_IPS": None,
}
_FIRST_IP = re.compile(r"""echo\s+["']?\$\{?SKYPILOT_NODE_IPS\}?["']?\s*\|\s*head\s+(?:-n\s*1|-1|-n1)\b""")


def _translate_variables(found: Translation, variables: Mapping[str, str | None]) -> None:
    """Define the tool's variables that setup and command use by BOA's; refuse those without a counterpart."""
    given = found.content.get("environment", {})
    prefix = next(iter(variables)).partition("_")[0]
    used = re.compile(rf"""(?:\$\{{?|["'])({prefix}_[A-Z0-9_]+)\b""")
    for key in ("setup", "run"):
        script = found.content.get(key, "")
        at: KeyPath = (key,) if key in found.document.content else ("commands",)
        others = [name for name in used.findall(script) if f"{name}=" not in script]
        lines = []
        for name in dict.fromkeys((*variables, *others)):
            uses = len(re.findall(rf"\b{name}\b", script))
            if not uses or name in given:
                continue
            if (own := variables.get(name)) is not None:
                lines.append(f'export {name}="{own}"')
            elif uses == len(_FIRST_IP.findall(script)):
                lines.append(f'export {name}="$MASTER_ADDR"')
            elif name in variables:
                why = f"{name}: a job knows MASTER_ADDR, the address of its first node, alone"
                found.say("refused", at, why)
            else:
                found.say("refused", at, f"{name}: BOA has no counterpart; set it in the environment")
        if lines:
            found.content[key] = "\n".join((*lines, script))


def refuse(found: Translation, path: str) -> InputError:
    """Return the error for a task with keys that are refused."""
    first, *others = found.refused
    more = f" (and {len(others)} more)" if others else ""
    said = f"{first.key or 'the task'}: {first.why}{more}"
    return InputError(said, file=path, line=first.line, hint="Write a job file for what BOA cannot take over")


def report(findings: Sequence[Finding], path: str) -> list[str]:
    """Return a line for each finding, in the order of the file."""
    ordered = sorted(findings, key=lambda one: one.line or 0)
    return [f"{path}:{one.line or 1}: {one.key or 'the task'}: {one.verdict}: {one.why}" for one in ordered]


TASKS: Mapping[str, TaskKind] = {
    "sky": TaskKind(
        translate=_sky,
        file="SkyPilot's task YAML",
        meant=(
            "`name`, `run`, `setup`, `workdir` (as `code`), `envs`, `num_nodes` × the number of "
            "`accelerators` (or `gpus`, also those of `any_of`), `image_id: docker:...`"
        ),
        ignored=("clouds, regions, spot, disks, ports; the GPU's name (the class says it); `cpus`, `memory`"),
        refused=(
            "`file_mounts`, `volumes`, `secrets`, `service`, values from the shell, parts of GPUs, "
            "choices of several numbers of GPUs, unknown keys"
        ),
        example="sky-task.yaml",
    ),
    "dstack": TaskKind(
        translate=_dstack,
        file="dstack's YAML of `type: task`",
        meant=(
            "`name`, `commands`, `env`, `nodes` × `gpu` (also a range), `image`, `working_dir`, "
            "`max_duration`, `stop_duration`"
        ),
        ignored=(
            "backends, regions, prices, spot, ports, disks; the GPU's name and memory; `python`, "
            "`cpu`, `memory`"
        ),
        refused="other types, `volumes`, `registry_auth`, `schedule`, values from the shell, unknown keys",
        example="dstack-task.yaml",
    ),
}
