"""Tests of the JavaScript client, in node and in Chromium; without them, they are skipped."""
