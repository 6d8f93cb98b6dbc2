"""Registers ``twistd fleximq``. Twisted reads this file for every ``twistd --help``, so it holds names only."""

from twisted.application.service import ServiceMaker

fleximq = ServiceMaker(
    "FlexiMQ", "fleximq.tap", "One message broker that speaks FlexiMQ, BlipMQ, MiniMQ and Identity.", "fleximq"
)
