"""Features of a fleet, a folder each: fields, streams, offers, coupling, view and sections."""
