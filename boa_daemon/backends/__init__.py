"""Where nodes come from: one module or package per cloud."""
