"""Registers the scheme. Twisted reads this file when it searches plug-ins, so it holds names only."""

from fleximq.api import Checker

timeCodes = Checker(
    "time_codes",
    "FILE",
    "Names, and the codes that an authenticator app shows for them; FILE has their keys.",
    ["fleximq.api.IPassword"],
    "fleximq_time_codes.checker.TimeCodes",
)
