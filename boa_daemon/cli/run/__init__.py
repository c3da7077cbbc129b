"""Verbs of a person who runs jobs."""
