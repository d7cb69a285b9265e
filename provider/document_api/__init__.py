"""The document interface: reassignments that anyone requests by documents in the journal (KIP-236, KIP-46)."""
