"""Stages that choose the jobs of this tick."""
