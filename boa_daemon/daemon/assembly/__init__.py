"""The tables of clouds and engines under the name that plug-ins import; they are in `loop/assembly.py`."""

from boa_daemon.daemon.loop.assembly import *  # noqa: F403 - all public names, also later ones
