"""Records what the program answers for 360 documents, and compares two recordings.

Documents are made from seeds. Questions go through the command line and the HTTP interface only, so that the
same recorder records trees whose modules differ. docs/contributing.md says how to use it.
"""
