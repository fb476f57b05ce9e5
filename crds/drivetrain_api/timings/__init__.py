"""How long the stages of an experiment took, and on what: the two files of a directory."""
