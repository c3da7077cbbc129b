"""The daemon's HTTP API, over a unix socket or TCP: application, server and client."""
