"""The Spark job: it cuts a snapshot into slices, plans them, and writes the plan."""
