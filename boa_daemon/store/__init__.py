"""Persistent storage: jobs, intents, outcomes, charges and decisions."""
