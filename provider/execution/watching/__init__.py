"""What is looked at again and again: failed brokers, plans that nobody steps, debts, the cluster's health."""
