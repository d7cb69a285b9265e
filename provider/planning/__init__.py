"""The Spark pipeline: a snapshot in, a plan and its proof out."""
