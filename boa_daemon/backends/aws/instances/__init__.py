"""Instances: what is offered, launched, listed, warned of, stopped, ended and swept."""
