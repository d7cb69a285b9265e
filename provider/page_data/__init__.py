"""Read the page's models from the SQL of a journal only: one query for each."""
