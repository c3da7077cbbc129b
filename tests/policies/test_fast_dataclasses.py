"""Generated constructors and `replace` give the same values as `dataclasses`."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from boa_daemon.tick.facts.draft import Draft
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.state import ClusterState, JobState, NodeState
from policies.answer import Allocation
from policies.errors import InvalidProblem
from policies.fast_dataclasses import fast_init, field_replacer, replace
from policies.model import Job, JobClass, Money, Phase, Width
from policies.speedup import PowerLaw


@dataclass(frozen=True, slots=True)
class _Plain:
    name: str
    gpus: int = 2
    seen: dict[str, int] = field(default_factory=dict)
    new: float = field(default=1.0, kw_only=True)


@fast_init
@dataclass(frozen=True, slots=True)
class _Quick:
    name: str
    gpus: int = 2
    seen: dict[str, int] = field(default_factory=dict)
    new: float = field(default=1.0, kw_only=True)


@fast_init
@dataclass(frozen=True, slots=True)
class _Few:
    gpus: int


class _Narrower(_Quick):
    __slots__ = ()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    gpus: int
    doubled: int = field(init=False, default=0)
    unit: str = field(init=False, default="gpus")
    kept: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError("none")
        object.__setattr__(self, "doubled", 2 * self.gpus)


@pytest.mark.parametrize(
    ("by_place", "by_name"), [(("a",), {}), (("a", 3), {"new": 2.0}), (("a",), {"seen": {"x": 1}, "gpus": 4})]
)
def test_fast_init_makes_the_same_value_as_a_plain_dataclass(
    by_place: tuple[str, int], by_name: Mapping[str, object]
) -> None:
    plain, made = _Plain(*by_place, **by_name), _Quick(*by_place, **by_name)  # type: ignore[arg-type]
    assert dataclasses.astuple(made) == dataclasses.astuple(plain)
    assert repr(made) == repr(plain).replace("_Plain", "_Quick")
    assert made == pickle.loads(pickle.dumps(made))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.gpus = 3  # type: ignore[misc]


def test_default_factories_run_for_each_value_and_wrong_arguments_are_refused() -> None:
    assert _Quick("a").seen is not _Quick("a").seen
    with pytest.raises(TypeError):
        _Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        _Quick("a", 1, {}, 2.0)  # type: ignore[misc]
    with pytest.raises(TypeError):
        replace(_Quick("a"), nothing=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("changes", [{}, {"gpus": 5}, {"new": 3.0, "name": "b"}, {"seen": {}}])
def test_replace_gives_the_same_value_as_dataclasses_replace(changes: Mapping[str, object]) -> None:
    before = _Quick("a", 3, {"x": 1}, new=2.0)
    assert replace(before, **changes) == dataclasses.replace(before, **changes)  # type: ignore[arg-type]
    assert before == _Quick("a", 3, {"x": 1}, new=2.0)


@pytest.mark.parametrize("names", [("gpus",), ("new", "name"), ("name", "gpus", "seen", "new")])
def test_a_field_replacer_gives_the_same_value_as_dataclasses_replace(names: tuple[str, ...]) -> None:
    """Values are given in the order in which the fields were named."""
    before, values = _Quick("a", 3, {"x": 1}, new=2.0), {"name": "b", "gpus": 5, "seen": {}, "new": 3.0}
    wanted = {name: values[name] for name in names}
    assert field_replacer(_Quick, *names)(before, *wanted.values()) == dataclasses.replace(before, **wanted)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        field_replacer(_Quick, *names)(before)
    with pytest.raises(TypeError, match="nothing"):
        field_replacer(_Quick, "nothing")
    assert field_replacer(_Checked, "gpus")(_Checked(gpus=2), 3).doubled == 6
    with pytest.raises(ValueError, match="none"):
        field_replacer(_Checked, "gpus")(_Checked(gpus=2), 0)


def test_a_finished_value_is_frozen() -> None:
    """The constructor fills an instance of an open class, and then sets the frozen class."""
    for value in (_Quick("a"), replace(_Quick("a"), gpus=3), _Few(1), replace(_Few(1), gpus=2)):
        assert type(value) in {_Quick, _Few}
        with pytest.raises(dataclasses.FrozenInstanceError):
            value.gpus = 4  # type: ignore[misc]  # that it is frozen is what is tested
        with pytest.raises(dataclasses.FrozenInstanceError):
            del value.gpus
    with pytest.raises(dataclasses.FrozenInstanceError):
        _Narrower("a").gpus = 3  # type: ignore[misc]  # as above
    assert type(_Narrower("a", 2)) is _Narrower


def test_replace_checks_a_value_and_derives_its_fields_again() -> None:
    value = _Checked(gpus=2)
    assert (value.doubled, value.unit, value.kept) == (4, "gpus", [])
    assert replace(value, gpus=3).doubled == 6
    with pytest.raises(ValueError, match="none"):
        replace(value, gpus=0)
    with pytest.raises(ValueError, match="none"):
        _Checked(gpus=0)


def test_replace_checks_a_value_without_derived_fields() -> None:
    """The generated code changes the value and runs the check."""
    phase = Phase(size_gpu_hours=1.0, speedups={"gpu": PowerLaw(exponent=0.5, max_gpus=4)})
    value = JobClass(name="a", phases=(phase,), weight=2.0)
    assert replace(value, weight=3.0) == dataclasses.replace(value, weight=3.0)
    with pytest.raises(InvalidProblem, match="weight of class a"):
        replace(value, weight=-1.0)


@pytest.mark.parametrize(
    "cls", [Allocation, ClusterState, Draft, Job, JobClass, JobState, Money, NodeState, Plan, Width]
)
def test_every_field_is_an_argument_with_its_default(cls: type) -> None:
    """Checked for the dataclasses that are made most often."""
    arguments = inspect.signature(cls).parameters
    for each in dataclasses.fields(cls):
        assert each.name in arguments
        if each.default is not dataclasses.MISSING:
            assert arguments[each.name].default is each.default
