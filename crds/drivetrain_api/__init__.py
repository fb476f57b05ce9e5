"""The contract of Drivetrain: everything that two parts, or a user, meet at.

Importing this package pulls pydantic and nothing heavier.
"""

__version__ = "0.1.0"
