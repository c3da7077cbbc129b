"""Stages that rent, keep and return nodes."""
