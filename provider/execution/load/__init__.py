"""What producers bring into each partition, from offsets and sizes, without an agent in the brokers."""
