"""The bytes of journal frames, pure. The pipeline and the command line may import this wing."""
