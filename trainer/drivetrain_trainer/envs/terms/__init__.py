"""Term functions that tasks share: each makes a `Quantity` (or a reset) from its settings."""
