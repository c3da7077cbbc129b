"""The answer from moment to moment: pacing, what whole nodes are worth, lending, cutting at a cap."""
