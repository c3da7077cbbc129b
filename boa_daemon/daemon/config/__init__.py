"""The settings under the name that plug-ins import; they are in `settings/config.py`."""

from boa_daemon.daemon.settings.config import *  # noqa: F403 - all public names, also later ones
