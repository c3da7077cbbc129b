"""The actions under the name that plug-ins import; they are in `facts/actions.py`."""

from boa_daemon.tick.facts.actions import *  # noqa: F403 - all public names, also later ones
