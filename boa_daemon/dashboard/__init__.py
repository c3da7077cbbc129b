"""The page: what it shows as documents, and its files, for a daemon and as one file that needs nothing."""
