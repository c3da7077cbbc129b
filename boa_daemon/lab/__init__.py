"""The laboratory: comparing, studies, the message simulator and importers. Nothing outside imports it."""
