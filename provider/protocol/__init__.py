"""Reassignments asked for by documents in the journal, by anyone (KIP-236, KIP-46)."""
