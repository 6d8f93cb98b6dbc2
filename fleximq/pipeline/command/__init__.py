"""The common parts of all jobs of ``fleximq-pipeline``: options, session, Java, progress, errors."""
