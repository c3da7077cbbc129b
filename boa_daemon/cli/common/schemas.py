"""The JSON schemas of the files that people write: by kind, and as files for editors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any


class SchemaName(StrEnum):
    """Kinds of files that have a JSON schema."""

    job = "job"
    settings = "settings"
    problem = "problem"
    prices = "prices"
    study = "study"
    world = "world"
    network = "network"
    trace = "trace"
    jobs = "jobs"
    offers = "offers"
    usage = "usage"
    samples = "samples"


SCHEMAS = {
    SchemaName.job: "inputs.job_file:job_schema",
    SchemaName.settings: "daemon.settings.config:Settings.model_json_schema",
    SchemaName.problem: "inputs.problem_rows:problem_schema",
    SchemaName.prices: "inputs.price_file:PriceFile.model_json_schema",
    SchemaName.study: "lab.compare.study_file:StudyFile.model_json_schema",
    SchemaName.world: "sim.world_file:world_schema",
    SchemaName.network: "lab.network.case:CaseEntry.model_json_schema",
    SchemaName.trace: "inputs.table_schemas:trace_schema",
    SchemaName.jobs: "inputs.table_schemas:jobs_schema",
    SchemaName.offers: "inputs.commitments_file:offers_schema",
    SchemaName.usage: "planning.rentals:usage_schema",
    SchemaName.samples: "lab.network.fit:samples_schema",
}


def schema_of(what: SchemaName) -> Any:
    """Return the JSON schema of a kind of file."""
    module, _, path = SCHEMAS[what].partition(":")
    return attrgetter(path)(import_module(f"boa_daemon.{module}"))()


def write_schemas(folder: Path, kinds: Iterable[SchemaName]) -> None:
    """Write schemas to a folder; raises OSError when it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        text = json.dumps(schema_of(kind), indent=1, ensure_ascii=False)
        (folder / f"{kind}.schema.json").write_text(text + "\n", encoding="utf-8")


def yaml_header(kind: SchemaName, folder: str = "schemas") -> str:
    """Return the first line of a YAML file that tells editors its schema in a folder beside it."""
    return f"# yaml-language-server: $schema={folder}/{kind}.schema.json\n"


def toml_header(kind: SchemaName, folder: str = "schemas") -> str:
    """Return the first line of a TOML file that tells editors (Taplo, Even Better TOML) its schema."""
    return f"#:schema {folder}/{kind}.schema.json\n"
