"""Settings of the daemon: their sections, where they come from, and how they change."""
