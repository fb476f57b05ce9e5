"""One manager a concern: actions, observations, rewards, terminations, reset events."""
