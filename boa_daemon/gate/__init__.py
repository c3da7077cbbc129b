"""The gate: who may send now on network cards that several training jobs share."""
