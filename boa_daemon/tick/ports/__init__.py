"""The ports under the name that plug-ins import; they are in `facts/ports.py`."""

from boa_daemon.tick.facts.ports import *  # noqa: F403 - all public names, also later ones
