"""The `System` that documents describe: reading, checking, changing and writing it."""
