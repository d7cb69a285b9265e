"""Real local Kafka clusters, for the demo, the tests, the benchmarks and DAG authors."""
