"""What a training process says to the gate of its node; standard library only."""
