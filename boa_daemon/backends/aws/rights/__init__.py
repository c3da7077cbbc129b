"""IAM: the statements that BOA needs, and those that a principal lacks."""
