"""``boa init``: ask five questions and write the first settings, classes and job."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from boa_daemon.cli.common.daemon_client import say_next
from boa_daemon.cli.common.output import print_text, stdout_console
from boa_daemon.cli.common.schemas import SchemaName, toml_header, write_schemas, yaml_header
from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.job.whole_files import write_whole
from boa_daemon.units import HOURS_PER_MONTH
from policies.model import InstanceType
from policies.money_text import in_dollars

SHOWN = ("g4dn.xlarge", "g5.xlarge", "g5.12xlarge", "g6.xlarge", "p4d.24xlarge", "p5.4xlarge", "p5.48xlarge")


class RentalMarket(StrEnum):
    """The market to rent machines on."""

    on_demand = "on-demand"
    spot = "spot"
    spot_first = "spot-then-on-demand"
    planned = "planned"


class CloudName(StrEnum):
    """Where machines are rented."""

    simulated = "simulated"
    local = "local"
    aws = "aws"


class JobOwners(StrEnum):
    """Whose jobs run on the machines."""

    mine = "mine"
    everybodys = "everybodys"


def init(
    *,
    folder: Annotated[Path, typer.Option(help="Folder to write to.")] = Path(),
    gpus: Annotated[
        str | None, typer.Option(metavar="TYPE[,TYPE]", help="Instance types or families to rent.")
    ] = None,
    usd_per_month: Annotated[float | None, typer.Option(min=1.0, help="Budget in dollars a month.")] = None,
    market: Annotated[RentalMarket | None, typer.Option(help="Market to rent on.")] = None,
    whose: Annotated[JobOwners | None, typer.Option(help="Whose jobs run.")] = None,
    where: Annotated[CloudName | None, typer.Option(help="Simulated, this machine, or AWS.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Ask five questions and write boa.toml, classes.yaml and a first job."""
    catalog = Catalog.load()
    machines = _machines(gpus, catalog) if gpus is not None else _ask_gpus(catalog)
    if usd_per_month is None:
        usd_per_month = typer.prompt("Budget, dollars a month", type=float, default=2000.0)
    if not usd_per_month > 0.0:
        raise InputError(f"the budget must be more than zero; got {usd_per_month:g} dollars a month")
    market = market or RentalMarket(_choose("On demand or spot", RentalMarket, RentalMarket.on_demand))
    whose = whose or JobOwners(_choose("Whose jobs run here", JobOwners, JobOwners.mine))
    where = where or CloudName(_choose("Where", CloudName, CloudName.simulated))
    files = {
        "boa.toml": toml_header(SchemaName.settings)
        + _settings(machines, usd_per_month, market, whose, where),
        "classes.yaml": yaml_header(SchemaName.problem) + _classes(machines),
        "hello.yaml": yaml_header(SchemaName.job) + _JOB,
    }
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        raise InputError(f"{', '.join(there)} is there already", hint="Choose another --folder, or --force")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_whole(folder / name, text)
        write_schemas(folder / "schemas", (SchemaName.settings, SchemaName.problem, SchemaName.job))
    except OSError as error:
        raise InputError(f"cannot write: {error.strerror}", file=folder) from None
    hours = usd_per_month / HOURS_PER_MONTH
    cheapest = min(machines, key=lambda kind: kind.usd_per_hour)
    stdout_console().print(
        f"Wrote {', '.join(files)}, and schemas for editors. {hours:.2f} dollars an hour rent "
        f"{hours / cheapest.usd_per_hour:.1f} {cheapest.name} around the clock, or more at busy times and "
        "fewer at others.",
        markup=False,
    )
    first = "boa doctor" if where is CloudName.aws else "boa daemon"
    say_next(first, "boa submit hello.yaml", "boa open", "boa plan --classes classes.yaml --open")


def _ask_gpus(catalog: Catalog) -> list[InstanceType]:
    """Show machines with prices and vCPUs, and ask which to rent until the answer is valid."""
    print_text("Which machines may be rented? Here are some with list prices; `boa catalog` lists all.\n")
    for name in SHOWN:
        kind = catalog.entries.get(name)
        if kind is not None and kind.usd_per_hour is not None:
            usd = in_dollars(kind.usd_per_hour)
            price = f"{kind.gpus} x {kind.gpu_type:<6} {usd:>8}/hour"
            print_text(f"  {name:<14} {price} {kind.vcpus:4d} vCPUs of a quota\n")
    print_text("New AWS accounts have no quota for p types and must ask AWS for one: `boa doctor` tells.\n")
    while True:
        answer = str(typer.prompt("Types or families, separated by commas", default="g5.xlarge"))
        try:
            return _machines(answer, catalog)
        except InputError as error:
            print_text(f"{error}\n")


def _machines(text: str, catalog: Catalog) -> list[InstanceType]:
    """Return the types of a list; a family or a GPU type stands for all its types with a known price.

    Raises:
        InputError: when a name is not in the catalogue, or none is given.
    """
    names = [word.strip() for word in text.split(",") if word.strip()]
    if not names:
        raise InputError("no instance type", hint="For example g5.xlarge; `boa catalog` lists them")
    found = []
    for name in names:
        kinds = catalog.select(family=name) or catalog.select(gpu_type=name)
        whole = [kind.name for kind in kinds if kind.usd_per_hour is not None]
        found += whole or [name]
    return [catalog.instance_type(name) for name in dict.fromkeys(found)]


def _choose(question: str, options: type[StrEnum], default: StrEnum) -> str:
    """Ask until the answer is one of the options."""
    names = [one.value for one in options]
    while True:
        answer = str(typer.prompt(f"{question} ({', '.join(names)})", default=default.value)).strip()
        if answer in names:
            return answer
        print_text(f"{answer!r} is none of {', '.join(names)}. {did_you_mean(answer, names)}\n")


def _settings(
    machines: list[InstanceType],
    usd_per_month: float,
    market: RentalMarket,
    whose: JobOwners,
    where: CloudName,
) -> str:
    names = ", ".join(f'"{kind.name}"' for kind in machines)
    engine = {CloudName.aws: "ssm"}.get(where, "local")
    shared = "shared_account = true        # everybody who submits is trusted with the daemon's rights\n"
    return (
        "[budget]\n"
        f"usd_per_month = {usd_per_month:g}\n"
        f"usd_per_month_cap = {1.1 * usd_per_month:g}     # never exceeded, whatever happens\n\n"
        "[cloud]\n"
        f'provider = "{where}"\n'
        f"instance_types = [{names}]\n"
        f'market = "{market}"\n'
        + (
            'region = "us-east-1"            # see docs/how-to/first-rented-instance.md\n'
            if where is CloudName.aws
            else ""
        )
        + (_warm_pool(machines, usd_per_month) if where is CloudName.aws and _may_stop(market) else "")
        + f'\n[engine]\nname = "{engine}"\n'
        + (shared if whose is JobOwners.everybodys and where is not CloudName.aws else "")
        + '\n[workload]\nclasses = "classes.yaml"\n\n[daemon]\nstate_dir = "state"\n'
    )


def _may_stop(market: RentalMarket) -> bool:
    """Return whether nodes may be on demand; EC2 stops no spot instance."""
    return market is not RentalMarket.spot


def _warm_pool(machines: list[InstanceType], usd_per_month: float) -> str:
    """Return the line that keeps at most as many nodes stopped as the budget rents on average."""
    cheapest = min(kind.usd_per_hour for kind in machines)
    nodes = max(1, round(usd_per_month / HOURS_PER_MONTH / cheapest))
    return f"warm_pool_nodes = {nodes}             # at most, while starts save more than disks cost\n"


def _classes(machines: list[InstanceType]) -> str:
    """Return a class file of guesses, which the daemon corrects as jobs run."""
    types = {kind.gpu_type: kind for kind in machines}
    widths = {
        kind.gpu_type: sorted({1, 2, 4, 8, kind.gpus} & set(range(1, max(8, kind.gpus) + 1)))
        for kind in types.values()
    }
    lines = [
        "# Guesses: the daemon measures speeds, sizes and rates and plans by those (boa classes).",
        "gpu_types:",
    ]
    lines += [f"  {name}: {{instance_type: {kind.name}}}" for name, kind in types.items()]
    lines += [
        "classes:",
        "- name: default",
        "  arrivals_per_hour: 0.5",
        "  phases:",
        "  - size_gpu_hours: 1.0",
    ]
    lines.append("    speedup:")
    for name, own in widths.items():
        table = ", ".join(f"{width}: {width**0.9:.4g}" for width in own)
        lines.append(f"      {name}: {{table: {{{table}}}}}")
    return "\n".join(lines) + "\n"


_JOB = """name: hello
class: default
run: echo hello from $BOA_JOB_ID on $BOA_GPUS GPU; sleep 5
max_gpus: 1
"""
