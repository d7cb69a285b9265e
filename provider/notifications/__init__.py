"""Notifications about a cluster, for Slack, Microsoft Teams, PagerDuty and e-mail."""
