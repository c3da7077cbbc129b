"""What the verbs share: options, output, and the connection to a daemon."""
