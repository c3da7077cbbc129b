"""BOA plans and runs GPU training jobs on rented clouds: observe, decide, act, record.

The names in `__all__` are public: the names, their arguments and the fields of their results change only in a
major version. Each name is imported on first use, because nodes import this package too and need none of
them.
"""

from boa_daemon.version import __version__

TYPE_CHECKING = False  # Same as typing.TYPE_CHECKING, without importing typing.
if TYPE_CHECKING:
    from boa_daemon.api.client import Client
    from boa_daemon.library.functions import commit, compare, frontier, plan, simulate, solve
    from boa_daemon.library.problem import Problem

__all__ = ["Client", "Problem", "__version__", "commit", "compare", "frontier", "plan", "simulate", "solve"]


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name == "Client":
        from boa_daemon.api.client import Client  # noqa: PLC0415

        return Client
    if name == "Problem":
        from boa_daemon.library.problem import Problem  # noqa: PLC0415

        return Problem
    if name in __all__:
        from boa_daemon.library import functions  # noqa: PLC0415

        return getattr(functions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
