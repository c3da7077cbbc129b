"""Where intents, outcomes, charges and decisions are remembered."""
