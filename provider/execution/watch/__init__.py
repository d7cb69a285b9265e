"""What the watch finds at each tick, and what it does about it."""
