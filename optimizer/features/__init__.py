"""Optional features of a fleet, such as routes and reserves; each has a package for all its parts."""
