"""Verbs for settings, rights and the gate."""
