"""Access to Kafka: cluster state, the Admin API, lag, throttles, health."""
