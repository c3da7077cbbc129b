"""Stages that choose widths."""
