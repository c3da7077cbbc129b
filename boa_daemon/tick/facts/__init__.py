"""What a tick knows and what it may answer: observed state, plan, actions, ports."""
