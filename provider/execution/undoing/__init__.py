"""A plan is undone to the end, and it is verified that everything is as it was (KIP-236)."""
