"""Jobs that share a network link: what that costs, and who sends first."""
