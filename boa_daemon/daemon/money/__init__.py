"""What runs cost beside the tick: prices of nodes, commitments, purses of teams."""
