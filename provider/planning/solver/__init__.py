"""The solver: it finds the plan with NumPy and OR-tools, without Spark."""
