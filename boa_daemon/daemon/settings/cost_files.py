"""What the files that settings name say of costs: prices, commitments, Capacity Blocks and class files.

A lower price lets less count against the caps, as a lower figure in the settings file does. So the daemon
remembers with the settings that it applied what these files said, and keeps their texts: a restart after
somebody has changed, cut short or removed one goes on by the texts until somebody consents.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.cost_copies import CostFiles
from boa_daemon.daemon.settings.setting_changes import SettingChange, SettingPath
from boa_daemon.errors import InputError
from boa_daemon.inputs.blocks_file import read_blocks
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.inputs.document_file import read_document
from boa_daemon.inputs.problem_file import load_problem

_PRICES, _COMMITMENTS, _BLOCKS = ("cloud", "prices"), ("cloud", "commitments"), ("cloud", "blocks")
_LOWER = "less would count against the caps"
_OTHER = "other costs would count against the caps"
_LOST = "the file stated it, and another price would take its place"


def read_cost_files(settings: Settings) -> CostFiles:
    """Return what the files that settings name say of costs.

    Raises:
        InputError: when a file cannot be read or is wrong, with file and line.
    """
    named = dict(_named_files(settings))
    if not named:
        return CostFiles()
    costs = {path: json.loads(json.dumps(cost, default=str)) for path, cost in _costs(settings, named)}
    texts = {}
    for file in named.values():
        try:
            texts[os.path.abspath(file)] = Path(file).read_bytes()
        except OSError as error:
            raise InputError(f"{file} cannot be read: {error.strerror or error}") from error
    return CostFiles(costs=costs, texts=texts)


def cost_changes(
    before: CostFiles, after: CostFiles, settings: Settings, *, now: float
) -> list[SettingChange]:
    """Return what files say otherwise than before of the settings' machines; `now` is an instant.

    A setting that names another file needs consent by itself. Commitments that are over count for nothing.
    """
    found = []
    for path in sorted({*before.costs, *after.costs}):
        was, will = before.costs.get(path), after.costs.get(path)
        if was == will:
            continue
        if isinstance(was, Mapping) or isinstance(will, Mapping):
            if (was is None or _is_over(was, now)) and (will is None or _is_over(will, now)):
                continue
            why = _OTHER
        elif path[-1] not in settings.cloud.instance_types or (
            path[1] == "by_region" and path[2] not in _regions(settings)
        ):
            continue
        else:
            why = _price_loosening(path, was, will, settings, before)
        found.append(SettingChange(path=path, before=was, after=will, why=why))
    return found


def _named_files(settings: Settings) -> Iterator[tuple[SettingPath, str]]:
    """Yield the settings that name files of costs, with the files."""
    cloud = settings.cloud
    if prices := getattr(cloud, "prices", None):
        yield _PRICES, prices
    for region, own in (getattr(cloud, "by_region", None) or {}).items():
        if own.prices and region in _regions(settings):
            yield ("cloud", "by_region", region, "prices"), own.prices
    if cloud.commitments:
        yield _COMMITMENTS, cloud.commitments
    if cloud.blocks:
        yield _BLOCKS, cloud.blocks
    if settings.workload.classes:
        yield ("workload", "classes"), settings.workload.classes


def _regions(settings: Settings) -> set[str]:
    """Return the regions in which the settings rent."""
    return {settings.cloud.region, *(getattr(settings.cloud, "regions", None) or ())}


def _costs(settings: Settings, named: Mapping[SettingPath, str]) -> Iterator[tuple[SettingPath, Any]]:
    """Yield what each file says of costs, by setting and name."""
    shipped = Catalog.load()
    home = [named[_PRICES]] if _PRICES in named else []
    for path, file in named.items():
        if path == _BLOCKS:
            for block in read_blocks(Path(file)):
                yield (
                    (*path, block.name),
                    {
                        "instance_type": block.instance_type,
                        "instances": block.instances,
                        "usd": block.usd,
                        "begins": block.begins.isoformat(),
                        "ends": block.ends.isoformat(),
                    },
                )
        elif path == _COMMITMENTS:
            content = read_document(file).content
            rows = content.get("commitments") if isinstance(content, Mapping) else None
            for row in rows if isinstance(rows, list) else ():
                # Who makes the plan checks the rows; here they are only compared.
                if isinstance(row, Mapping):
                    yield (*path, f"{row.get('name')} from {row.get('begins', 'the first day')}"), dict(row)
        elif path[0] == "workload":
            catalog = Catalog.load(*home, region=settings.cloud.region if home else "")
            found = load_problem(file, catalog=catalog, require_rates=False)
            # A price that only the catalogue states is not the file's: it may change with the version.
            for price in found.prices:
                if price.source == f"set in {found.path}":
                    yield (*path, price.instance_type), price.usd_per_hour
        else:
            region = settings.cloud.region if path[1] == "prices" else path[2]
            for name, entry in Catalog.load(file, region=region).entries.items():
                if entry.usd_per_hour is not None and entry != shipped.entries.get(name):
                    yield (*path, name), entry.usd_per_hour


def _price_loosening(
    path: SettingPath, was: float | None, will: float | None, settings: Settings, before: CostFiles
) -> str:
    """Return why another price lets less count against the caps; empty when it does not."""
    if will is None:
        return _LOST
    if was is None and path[0] == "workload":
        was = before.costs.get((*_PRICES, path[-1]))
    if was is None:
        region = path[2] if path[1] == "by_region" else settings.cloud.region
        entry = Catalog.load().in_region(region).entries.get(path[-1])
        was = None if entry is None else entry.usd_per_hour
    return _LOWER if was is not None and will < was else ""


def _is_over(row: Mapping[str, Any], now: float) -> bool:
    """Whether a commitment or block has ended."""
    try:
        ends = datetime.fromisoformat(str(row["ends"]))
    except (KeyError, ValueError):
        return False
    return (ends if ends.tzinfo else ends.replace(tzinfo=UTC)).timestamp() <= now
