"""The study file: traces, budgets, policies, worlds and seeds, in YAML.

`docs/reference/study-file.md` describes the format. A mistake raises an `InputError` with key, file and line,
and what to type. Paths are relative to the study file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pydantic import Field

from boa_daemon.errors import InputError, did_you_mean
from boa_daemon.inputs.document_file import Document, KeyPath, read_document
from boa_daemon.inputs.problem_file import ProblemFile, load_problem
from boa_daemon.inputs.schema import Name, NotNegative, Positive, Strict, a_kind, checked
from boa_daemon.lab.compare.cells import REFERENCE, Comparison
from boa_daemon.lab.compare.study_worlds import CALM, WORLDS
from boa_daemon.lab.traces.goodness_of_fit import GoodnessOfFit, goodness_of_fit
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.lab.traces.load_model import TraceLoad, fit_load
from boa_daemon.sim.bounds.boot_bound import SearchEffort
from boa_daemon.sim.wiring import settings_for
from boa_daemon.sim.world_file import load_world
from boa_daemon.sim.world_settings import WorldSettings
from boa_daemon.traces.reader import Trace, check_classes, read_trace
from boa_daemon.traces.workload import Options
from boa_daemon.traces.writer import write_workload
from boa_daemon.units import parse_budget
from policies.errors import UnknownPolicy
from policies.model import Budget, InstanceType
from policies.optimum.frontier import MixedFrontier
from policies.registry import find_policy

WORLD_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
_EFFORT = SearchEffort(steps=12)
"""The search effort for the bound with boots; fewer steps give a slightly lower one, which holds."""
_BUDGETS = "Write 60/h, 900/day, gpus:48, or x1.5 for 1.5 times the least cost of the load"


class _Source(Strict):
    format: Name = Field(description="format: pollux, gavel, itp, shockwave and so on")
    path: Name = Field(description="its file or folder")
    workload: Name | None = Field(default=None, description="file to read, if there are several")
    apps: list[Name] | None = Field(default=None, description="only jobs of these applications")
    profiles: Name | None = Field(default=None, description="measured speed-ups for a trace without any")
    limit: int | None = Field(default=None, ge=1, description="at most this many jobs, the earliest")
    from_hours: float | None = Field(default=None, ge=0.0, description="only jobs from this hour on")
    to_hours: Positive | None = Field(default=None, description="only jobs before this hour")
    gpu_types: list[Name] | None = Field(default=None, min_length=1, description="only these GPU types")


class _Trace(Strict):
    name: Name = Field(description="name of the trace in the report")
    trace: Name | None = Field(default=None, description="a file of arrivals")
    like: Name | None = Field(default=None, description="a file of arrivals, to draw similar load")
    source: _Source | None = Field(default=None, description="a public trace, imported as by trace import")
    classes: Name | None = Field(default=None, description="a class file or problem file")
    groups: list[Name] = Field(default=[], description="a page can have tables of the traces of a group")
    budgets: list[Name] | None = Field(default=None, min_length=1, description="in place of the study's")
    policies: list[Name] | None = Field(default=None, description="in place of the study's; [] for none")
    worlds: list[Name] | None = Field(default=None, min_length=1, description="in place of the study's")
    seeds: int | None = Field(default=None, ge=1, le=10_000, description="in place of the study's")
    learns: bool | None = Field(default=None, description="in place of the study's")
    boot_seconds: NotNegative | None = Field(default=None, description="in place of the study's")
    max_nodes: int | None = Field(default=None, ge=1, description="in place of the study's")
    hours: Positive | None = Field(default=None, description="hours to draw, with like; those of the file")
    load: Positive = Field(default=1.0, description="with like: factor on the file's rates")
    bursts: NotNegative | None = Field(
        default=None, description="with like: variance of the hourly rate over its mean squared; as fitted"
    )


class StudyFile(Strict):
    """The contents of a study file."""

    title: Name = Field(default="A study", description="the heading of the report")
    traces: list[_Trace] = Field(min_length=1, description="traces of jobs")
    budgets: list[Name] = Field(min_length=1, description="60/h, gpus:48 or x1.5, each for all traces")
    policies: list[Name] = Field(default=[], description="rivals of boa, each tuned to spend the same")
    worlds: list[Name] = Field(default=[CALM], min_length=1, description="names, or world files")
    seeds: int = Field(default=1, ge=1, le=10_000, description="draws of each trace")
    reference: Name = Field(default=REFERENCE, description="the policy whose spend the others meet")
    learns: bool = Field(default=False, description="whether the reference learns, as the daemon does")
    boot_seconds: NotNegative = Field(default=180.0, description="seconds from launch to ready")
    max_nodes: int | None = Field(default=None, ge=1, description="a cap on nodes; none if left out")
    bound_with_boots: bool = Field(default=False, description="also compute the bound for nodes that boot")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyCase:
    """One trace or draw of it, at one budget in one world: a comparison over its seeds."""

    trace: str
    groups: tuple[str, ...]
    draw: int
    budget: str
    world: str
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A study: its file and its cases; `loads` has the goodness of fit of each drawn load."""

    file: StudyFile
    cases: tuple[StudyCase, ...]
    loads: Mapping[str, GoodnessOfFit] = field(default_factory=dict)

    def of_group(self, name: str) -> Study:
        """Return the study of one group of traces."""
        return replace(
            self,
            cases=tuple(case for case in self.cases if name in case.groups),
            loads={
                source.name: self.loads[source.name]
                for source in self.file.traces
                if name in source.groups and source.name in self.loads
            },
        )

    @property
    def groups(self) -> list[str]:
        """The groups of traces."""
        return list(dict.fromkeys(group for case in self.cases for group in case.groups))

    @property
    def traces(self) -> list[str]:
        """The traces."""
        return list(dict.fromkeys(case.trace for case in self.cases))

    @property
    def rivals(self) -> list[str]:
        """The policies other than the reference."""
        return list(dict.fromkeys(name for case in self.cases for name in case.comparison.rivals))

    @property
    def worlds(self) -> list[str]:
        """The worlds; figures of others are compared with those in the first."""
        return list(dict.fromkeys(case.world for case in self.cases))

    @property
    def budgets(self) -> list[str]:
        """The budgets, as written."""
        return list(dict.fromkeys(case.budget for case in self.cases))

    @property
    def seeds(self) -> set[int]:
        """The numbers of seeds that traces have."""
        seeds: dict[str, int] = {}
        for case in self.cases:
            seeds[case.trace] = max(seeds.get(case.trace, 0), case.draw + case.comparison.seeds)
        return set(seeds.values())

    @property
    def cells(self) -> int:
        """The number of cells."""
        return sum(case.comparison.cells for case in self.cases)


class _Read(NamedTuple):
    """The classes and arrivals of a trace entry, and the load model if arrivals are drawn."""

    problem: ProblemFile
    trace: Trace
    load: TraceLoad | None


def load_study(path: str | Path) -> Study:
    """Return the study of a file, with all files that it names read and checked.

    Raises:
        InputError: when something in the file is not valid; with file and line.
    """
    document = read_document(path)
    if not isinstance(document.content, dict):
        raise document.error(f"a study file is a mapping; got {a_kind(document.content)}")
    file = checked(StudyFile, document.content, document=document)
    for key in ("traces", "budgets", "policies", "worlds"):
        values: list[Any] = getattr(file, key)
        names = [value.name if isinstance(value, _Trace) else value for value in values]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise document.error(f"{key} names {name} twice", at=(key, number), hint="Remove one of them")
    _check_policies(file, document)
    folder = Path(document.name).parent
    imported: dict[str, _Read] = {}
    found = [_read(document, folder, number, source, imported) for number, source in enumerate(file.traces)]
    cases = [case for number, read in enumerate(found) for case in _cases(file, number, read, document)]
    # Takes hundreds of draws, so it comes after all checks.
    loads = {
        source.name: goodness_of_fit(read.trace, read.load)
        for source, read in zip(file.traces, found, strict=True)
        if read.load is not None
    }
    return Study(file=file, cases=tuple(cases), loads=loads)


def _check_policies(file: StudyFile, document: Document) -> None:
    """Raise an error for the first name that is no policy."""
    lists: list[tuple[KeyPath, list[str]]] = [(("policies",), file.policies)]
    lists += [(("traces", n, "policies"), trace.policies or []) for n, trace in enumerate(file.traces)]
    named: list[tuple[KeyPath, str]] = [(("reference",), file.reference)]
    named += [((*at, place), name) for at, names in lists for place, name in enumerate(names)]
    for at, name in named:
        try:
            find_policy(name)
        except UnknownPolicy as error:
            raise document.error(str(error), at=at) from error


def _read(document: Document, folder: Path, number: int, source: _Trace, imported: dict[str, _Read]) -> _Read:
    """Return the classes and arrivals of a trace entry; with `like` also its fitted load model.

    `imported` has the sources that were imported before, so that each is imported once.
    """
    at, name = ("traces", number), f"traces[{source.name!r}]"
    path = source.trace or source.like
    if sum(one is not None for one in (source.trace, source.like, source.source)) != 1:
        hint = "Write trace: FILE for the arrivals themselves, or like: FILE for load that is drawn"
        raise document.error(f"{name} takes either trace or like, or a source", at=at, hint=hint)
    if source.like is None:
        for key in ("hours", "load", "bursts"):
            if key in source.model_fields_set:
                hint = f"Write like: {path or 'FILE'} to draw"
                raise document.error(f"{name}.{key} is for like", at=(*at, key), hint=hint)
    if (source.classes is None) == (source.source is None):
        hint = "A source brings its own classes; trace and like need classes: FILE"
        words = "is missing" if source.classes is None else "is not for a source"
        raise document.error(f"{name}.classes {words}", at=at, hint=hint)
    if source.source is not None:
        key = source.source.model_dump_json()
        if key not in imported:
            imported[key] = _imported(document, folder, (*at, "source"), source.source)
        return imported[key]
    assert path is not None
    assert source.classes is not None
    file = load_problem(folder / source.classes, require_rates=False)
    trace = read_trace(folder / path)
    check_classes(trace, [job_class.name for job_class in file.problem.classes], folder / path)
    return _Read(file, trace, None if source.like is None else fit_load(trace))


def _imported(document: Document, folder: Path, at: KeyPath, source: _Source) -> _Read:
    """Return the classes and arrivals of a public trace, through the files that `boa trace import` writes."""
    options = Options(
        workload=source.workload,
        apps=None if source.apps is None else tuple(source.apps),
        profiles=None if source.profiles is None else folder / source.profiles,
        limit=source.limit,
        from_hours=source.from_hours,
        to_hours=source.to_hours,
    )
    workload = import_source(source.format, folder / source.path, options)
    for place, name in enumerate(source.gpu_types or ()):
        if name not in workload.gpu_types:
            words = f"source.gpu_types: the jobs of {source.path} do not run on {name!r}"
            hint = did_you_mean(name, workload.gpu_types)
            raise document.error(words, at=(*at, "gpu_types", place), hint=hint)
    if source.gpu_types is not None:
        workload = workload.on_gpu_types(source.gpu_types)
    with TemporaryDirectory(prefix="boa-study-") as name:
        trace, classes = write_workload(workload, Path(name))
        return _Read(load_problem(classes, require_rates=False), read_trace(trace), None)


def _cases(file: StudyFile, number: int, read: _Read, document: Document) -> list[StudyCase]:
    """Return the cases of one trace: draws of its load, or one case whose seeds reorder its jobs."""
    problem, trace, load = read
    source = file.traces[number]
    traces, seeds = [trace], source.seeds or file.seeds
    if load is not None:
        hours, draws, seeds = source.hours or trace.window_hours, range(seeds), 1
        traces = [load.draw(hours, seed=seed, load=source.load, bursts=source.bursts) for seed in draws]
    at: KeyPath = ("traces", number)
    budgets, of_budgets = (file.budgets, ()) if source.budgets is None else (source.budgets, at)
    worlds, of_worlds = (file.worlds, ()) if source.worlds is None else (source.worlds, at)
    policies = file.policies if source.policies is None else source.policies
    boot_seconds = file.boot_seconds if source.boot_seconds is None else source.boot_seconds
    found = []
    for draw, arrivals in enumerate(traces):
        for place, text in enumerate(budgets):
            budget = _budget(text, problem, arrivals, document, (*of_budgets, "budgets", place))
            settings = settings_for(problem, arrivals, budget)
            machines = tuple(settings.instance_types.values())
            for position, name in enumerate(worlds):
                world = _world(machines, problem, document, (*of_worlds, "worlds", position), name)
                comparison = Comparison(
                    shared=replace(
                        settings,
                        world=world,
                        learns=file.learns if source.learns is None else source.learns,
                        boot_seconds=boot_seconds,
                        max_nodes=source.max_nodes or file.max_nodes,
                    ),
                    budgets=(budget,),
                    rivals=tuple(name for name in policies if name != file.reference),
                    seeds=seeds,
                    reference=file.reference,
                    bound_effort=_EFFORT if file.bound_with_boots else None,
                )
                found.append(
                    StudyCase(
                        trace=source.name,
                        groups=tuple(source.groups),
                        draw=draw,
                        budget=text,
                        world=Path(name).stem if name not in WORLDS else name,
                        comparison=comparison,
                    )
                )
    return found


def _budget(text: str, problem: ProblemFile, trace: Trace, document: Document, at: KeyPath) -> Budget:
    """Return a budget; one such as x1.5 is computed from the trace's load."""
    try:
        if not text.startswith("x"):
            return parse_budget(text)
        factor = float(text[1:])
        if not 0.0 < factor < 1e6:
            raise ValueError
    except InputError as error:
        raise document.error(f"budgets: {error.problem}", at=at, hint=_BUDGETS) from error
    except ValueError:
        raise document.error(f"budgets: {text!r} is no budget", at=at, hint=_BUDGETS) from None
    unit = "usd_per_hour" if problem.has_prices else "gpus"
    settings = settings_for(problem, trace, Budget(amount=1.0, unit=unit))  # type: ignore[arg-type]
    bare = tuple(replace(c, startup_hours=0.0, rescale_hours=0.0) for c in settings.problem.classes)
    load = MixedFrontier.of(replace(settings.problem, classes=bare)).cheapest_feasible_spend
    return replace(settings.budget, amount=factor * load)


def _world(
    machines: Collection[InstanceType], problem: ProblemFile, document: Document, at: KeyPath, name: str
) -> WorldSettings:
    """Return the world of a name or a file."""
    names = [job_class.name for job_class in problem.problem.classes]
    if name in WORLDS:
        return WORLDS[name](names)
    if not name.endswith(WORLD_SUFFIXES):
        known = did_you_mean(name, WORLDS)
        hint = f"{known}{'' if known.endswith('?') else '.'} A world of your own is a file that ends in .yaml"
        raise document.error(f"worlds: there is no world {name!r}", at=at, hint=hint)
    return load_world(Path(document.name).parent / name, machines, names)
