"""The ledger, and what a plan may cost under caps and shares."""
