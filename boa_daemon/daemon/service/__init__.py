"""What answers requests of clients."""
