"""How long the stages of an experiment took: what user code and training record by."""
