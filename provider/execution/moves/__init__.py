"""The moves of a plan: their states, what is seen of them in Kafka, what may start, and how one is taken back."""
