"""The loop around the tick, its parts, and how they are put together."""
