"""Fixtures: AWS clouds in process, against the fake AWS."""

from aws_fixtures import credentials, make_rig, rig

__all__ = ["credentials", "make_rig", "rig"]
