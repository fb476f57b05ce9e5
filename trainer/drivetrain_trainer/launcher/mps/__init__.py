"""CUDA MPS of a pod: started and asserted, or asserted and left alone; never guessed."""
