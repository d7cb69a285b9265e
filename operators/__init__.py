"""The operators of the provider."""
