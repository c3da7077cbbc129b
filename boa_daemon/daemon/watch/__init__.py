"""Alerts, metrics and history."""
