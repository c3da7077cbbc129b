"""AWS as a cloud: the entry point is `cloud`, and every call to AWS goes through `calls`."""
