"""Stages that finish the plan."""
