"""Fixtures with a fake AWS, for the tests of this folder."""

from aws_fixtures import credentials, make_rig, rig

__all__ = ["credentials", "make_rig", "rig"]
