"""Connects other frameworks to FlexiMQ: each module belongs to one of them and needs its extra.

Nothing else in FlexiMQ imports these modules, and only they import the frameworks.
"""
