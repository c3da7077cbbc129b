"""Where nodes come from: one module or family of modules per cloud."""
