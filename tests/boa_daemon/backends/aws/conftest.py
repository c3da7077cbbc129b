"""AWS to test against."""

from aws_fixtures import credentials, make_rig, rig

__all__ = ["credentials", "make_rig", "rig"]
