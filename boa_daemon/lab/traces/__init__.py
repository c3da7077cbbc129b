"""Importers of published traces, and fits of load models."""
