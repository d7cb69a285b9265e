"""Numbered migrations."""
