"""Jobs for the command line and the service: the fields of each request, and the function that answers it.

If a request contradicts itself, its `RequestError` names fields; the command line shows the flags of these
fields, the service the names in its documents.
"""
