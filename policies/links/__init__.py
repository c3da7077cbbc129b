"""Network links shared by jobs: the cost of contention, and the order of sending."""
