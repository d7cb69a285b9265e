"""A broker dies, and the cluster is healed, on this machine."""
