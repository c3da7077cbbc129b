"""Stages that keep what is not allowed from happening."""
