"""Topics and partitions created with fewer replicas than wanted (KIP-409), and preferred leaders."""
