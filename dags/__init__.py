"""The workflows, one function each."""
