"""What Kafka Steward costs, measured on real clusters: `python -m benchmarks`."""
