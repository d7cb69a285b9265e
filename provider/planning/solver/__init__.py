"""Finds the plan: NumPy and OR-tools, without Spark."""
