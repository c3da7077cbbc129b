"""Stages that choose GPUs."""
