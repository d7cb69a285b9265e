"""Periodic checks: failed brokers, idle plans, orphaned throttles, the cluster's health."""
