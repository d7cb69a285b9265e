"""Topics made with fewer replicas than they shall have, and what is owed to them (KIP-409); brokers that join."""
