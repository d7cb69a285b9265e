"""Even plans of more partitions than one flow can hold: shards are summarized, and each is solved within its quota."""
