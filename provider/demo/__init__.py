"""The demo: a broker fails, and the cluster is healed, on this machine."""
