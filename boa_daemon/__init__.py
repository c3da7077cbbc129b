"""What do we do now?  Observe, decide, act, record."""

__version__ = "0.1.0"

TYPE_CHECKING = False  # As typing's: nodes import this package too, and need none of it.
if TYPE_CHECKING:
    from boa_daemon.api.client import Client as Client


def __getattr__(name: str) -> object:
    """Return what this package offers by its own name; only who asks for it pays for its import."""
    if name == "Client":
        from boa_daemon.api.client import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
