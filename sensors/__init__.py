"""The sensors of the provider."""
