"""Schedules: publications that wait for their time, once or repeatedly, in memory or in the journal."""
