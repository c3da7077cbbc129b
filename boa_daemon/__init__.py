"""What do we do now?  Observe, decide, act, record."""

__version__ = "0.1.0"
