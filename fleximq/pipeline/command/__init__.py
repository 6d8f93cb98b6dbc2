"""What every job of ``fleximq-pipeline`` stands on: options, session, Java, progress, errors."""
