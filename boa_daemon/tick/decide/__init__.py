"""The list of stages, and the controller that calls it."""
