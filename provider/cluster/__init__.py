"""Kafka itself: its state, the Admin API, lag, throttles, health."""
