"""The solver: it finds the plan with NumPy and LEMON, without Spark."""
