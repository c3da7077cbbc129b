"""Which GPUs of which nodes a job gets."""
