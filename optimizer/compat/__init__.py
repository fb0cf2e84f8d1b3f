"""What only clients of the reference family speak."""
