"""The exceptions that inferplan raises, all in one tree.

::

    InferplanError ├── SpecError             a document is missing, malformed or inconsistent        exit 2 ·
    HTTP 422 ├── AnalysisError         a single queue cannot be analysed as asked              exit 2 · HTTP
    422 ├── FitError              measurements to which no law can be fitted             exit 2 · HTTP 422 ├──
    IncompletePlanError   only from ``Plan.raise_for_status``                     exit 3 ├── MissingExtraError
    an optional package is not installed                   exit 2 └── SolverError           the solver failed,
    or its answer failed verification    exit 4 · HTTP 500

Unserved load is not an exception but a result (``Plan.unserved``).
"""


class InferplanError(Exception):
    """Base of all errors that inferplan raises on purpose; the message is one line."""

    exit_code = 1
    http_status = 500


class SpecError(InferplanError):
    """Raised when a document cannot be read, or contains an impossible value.

    The message names the place (``servers[3].model``), the value, the limit and the fix.
    """

    exit_code = 2
    http_status = 422


class AnalysisError(InferplanError):
    """Raised when the queue of one replica cannot be analysed or sized as requested."""

    exit_code = 2
    http_status = 422


class FitError(InferplanError):
    """Raised when measurements cannot be read, or are too few or inconsistent to fit a latency model."""

    exit_code = 2
    http_status = 422


class IncompletePlanError(InferplanError):
    """Raised by ``Plan.raise_for_status`` when a server is not served in full."""

    exit_code = 3
    http_status = 409


class MissingExtraError(InferplanError, ImportError):
    """Raised when an optional package is not installed; the message names it."""

    exit_code = 2
    http_status = 500


class SolverError(InferplanError):
    """Raised when the solver fails, or its result does not pass verification."""

    exit_code = 4
    http_status = 500
