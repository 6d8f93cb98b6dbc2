"""The files of a journal folder. The pipeline and the command line may import this wing."""
