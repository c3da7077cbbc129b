"""Prices of instances and of what goes with them: disks, addresses, storage, requests."""
