"""Building an image of our own."""
