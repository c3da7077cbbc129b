"""Which nodes and widths there is room for, now and soon."""
