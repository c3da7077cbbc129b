"""What do we do now?  Observe, decide, act, record.

The names in `__all__` are public: they, their arguments and the fields of what they return change in a major
version only. Each is imported when it is first used, because nodes import this package too, and need none.
"""

from boa_daemon.version import __version__

TYPE_CHECKING = False  # As typing's, without its import.
if TYPE_CHECKING:
    from boa_daemon.api.client import Client
    from boa_daemon.library.functions import commit, compare, frontier, plan, simulate, solve
    from boa_daemon.library.problem import Problem

__all__ = ["Client", "Problem", "__version__", "commit", "compare", "frontier", "plan", "simulate", "solve"]


def __getattr__(name: str) -> object:
    """Return a public name."""
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
