"""Topics created with too few replicas, their pending replicas (KIP-409), and brokers that join."""
