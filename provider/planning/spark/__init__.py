"""The Spark job: it cuts a snapshot into shards, plans them, and writes the plan."""
