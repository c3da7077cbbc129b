"""Verbs of the person who runs the daemon."""
