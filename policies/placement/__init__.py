"""Placement: the choice of the GPUs and nodes of each job."""
