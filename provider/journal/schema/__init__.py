"""The tables of the SQL journal and of the audit trail."""
