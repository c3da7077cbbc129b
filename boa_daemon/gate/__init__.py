"""The gate: decides which job may send now on network cards that several training jobs share."""
