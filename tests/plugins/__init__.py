"""The example plug-ins in ``plugins/``: their own tests, run from their folders, and their installation."""
