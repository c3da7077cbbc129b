"""The checks of an account before anything is rented."""
