"""What a trained policy is worth, what it looks like, and how it leaves the project."""
