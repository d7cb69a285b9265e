"""Durable state, and the audit trail."""
