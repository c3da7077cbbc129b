"""Helpers that a training script may import: small, and without heavy imports."""
