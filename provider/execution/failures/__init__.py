"""What counts as a failure, and what is recorded of it."""
