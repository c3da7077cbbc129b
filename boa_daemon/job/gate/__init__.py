"""The job's side of the gate protocol: address, handshake, frames and client. Standard library only."""
