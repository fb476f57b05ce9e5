"""The tasks that ship: their declarations (`catalog`) and how each is made."""
