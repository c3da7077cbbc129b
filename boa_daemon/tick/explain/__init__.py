"""Why a job waits or has its width, in sentences."""
