"""What pictures show, as data."""
