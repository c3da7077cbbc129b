"""The dashboard page: its documents and files, served by a daemon or written as one static file."""
