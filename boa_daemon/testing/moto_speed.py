"""moto works out once what it would work out again for each request or each new cloud.

Half of the processor time of a call to the fake cloud is spent on this: how an attribute of a model may be
called, which methods a class has, and keys of 2,048 bits that nothing is ever encrypted with. The functions
are private to moto; where a version has others, its own are left in place and only take longer.

For a process that has moto for BOA alone: our tests, and the fake cloud by itself. Tests of other projects
may use `fronts` beside their own mocks, in which two keys differ and the library `requests` is redirected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any


def speed_up() -> None:
    """Replace moto's functions in this process by ones that remember; a second call changes nothing."""
    for each in (_names_of_attributes, _methods_of_classes, _names_of_elements, _keys, _requests, _offerings):
        with suppress(ImportError, AttributeError):
            each()


def _names_of_attributes() -> None:
    """Remember the names under which an attribute is looked for, by shape and class of the model."""
    from moto.core import serialize  # noqa: PLC0415 - another version may lack it

    picker = serialize.XFormedAttributePicker
    original: Callable[[Any, Any], Iterator[str]] = picker.get_possible_keys
    usual = serialize.DEFAULT_ALIAS_PROVIDERS
    if hasattr(original, "__wrapped__"):
        return
    by_shape: dict[tuple[Any, type, str], tuple[str, ...]] = {}

    @functools.wraps(original)
    def get_possible_keys(self: Any, context: Any) -> Iterator[str]:
        if self.alias_providers is not usual:
            return original(self, context)
        place = (context.shape, type(context.obj), context.key)
        names = by_shape.get(place)
        if names is None:
            names = by_shape[place] = tuple(dict.fromkeys(original(self, context)))
        return iter(names)

    picker.get_possible_keys = get_possible_keys


def _methods_of_classes() -> None:
    """Remember the methods of a class of answers."""
    from moto.core import responses  # noqa: PLC0415

    responses.method_names_from_class = _remembered(responses.method_names_from_class)


def _names_of_elements() -> None:
    """Remember which names of elements are valid in XML."""
    import xmltodict  # type: ignore[import-untyped] # noqa: PLC0415

    xmltodict._validate_name = _remembered(xmltodict._validate_name)


def _keys() -> None:
    """Make one key of a kind: each volume that is encrypted by default makes one in a new cloud."""
    from moto.kms import models  # noqa: PLC0415

    models.generate_private_key = _remembered(models.generate_private_key)


def _requests() -> None:
    """Do not redirect the library `requests`, which BOA does not use, by 1,300 patterns per cloud."""
    from moto.core import models  # noqa: PLC0415

    models.RESPONSES_METHODS.clear()


def _offerings() -> None:
    """Look for the offerings of an instance type among its own, and not among 6,000 in 90 calls."""
    from moto.ec2.models import instance_types  # noqa: PLC0415

    backend = instance_types.InstanceTypeOfferingBackend
    original = backend.describe_instance_type_offerings
    if hasattr(original, "__wrapped__"):
        return
    listed = instance_types.INSTANCE_TYPE_OFFERINGS
    by_type: dict[tuple[str, str], tuple[Any, dict[str, list[Any]]]] = {}

    @functools.wraps(original)
    def describe(self: Any, location_type: str | None = None, filters: Any = None) -> list[Any]:
        wanted = (filters or {}).get("instance-type")
        if not wanted:
            return list(original(self, location_type, filters))
        place = (location_type or "region", self.region_name)
        # A test may put a list of its own in the place of moto's.
        source = listed.get(place[0], {}).get(place[1])
        if place not in by_type or by_type[place][0] is not source:
            by_type[place] = source, {}
            for each in original(self, location_type, {}):
                by_type[place][1].setdefault(each["InstanceType"], []).append(each)
        rows = (each for name in sorted(set(wanted)) for each in by_type[place][1].get(name, ()))
        return [each for each in rows if self.matches_filters(each, filters, place[0])]

    backend.describe_instance_type_offerings = describe


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls another once for the same arguments."""
    return function if hasattr(function, "__wrapped__") else functools.cache(function)
