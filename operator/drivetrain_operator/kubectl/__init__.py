"""`kubectl drivetrain`: TrainingRuns for people; reads and patches runs, holds no state."""
