"""Jobs of the command line and the REST service: the fields of each request, and a function to run it.

If a request contradicts itself, its `RequestError` names fields; the command line shows the flags of these
fields, the service the names in its documents.
"""
