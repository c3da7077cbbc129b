"""HTTP over a Unix socket: the application, its server, and the client of the command line."""
