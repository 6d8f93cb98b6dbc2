"""The measurement of the pipeline."""
