"""The jars of each Kafka version, pinned by SHA-256."""
