"""How a rank trains: set-up, the learner loop, its boundaries, and its honest end."""
