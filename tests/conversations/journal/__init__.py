"""Conversations with a broker that keeps a journal: restarts, kills, full disks, replays."""
