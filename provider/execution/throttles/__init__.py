"""Replication throttles: the rates (KIP-73), our leases of them, and what others left."""
