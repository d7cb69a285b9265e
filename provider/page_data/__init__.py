"""What the page shows, read from the SQL of a journal only: pure read models, and one query for each."""
