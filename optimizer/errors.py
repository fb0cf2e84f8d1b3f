"""The exceptions that inferplan raises, all in one tree.

::

    InferplanError                                                           exit  HTTP
    ├── SpecError            document missing, malformed or inconsistent        2   422
    ├── AnalysisError        replica that cannot be analysed or sized           2   422
    ├── FitError             measurements to which no law can be fitted         2   422
    ├── IncompletePlanError  only from ``Plan.raise_for_status``                3   409
    ├── MissingExtraError    optional package not installed                     2   500
    └── SolverError          failed solver, or answer that fails verification   4   500

Unserved load is not an exception but a result (``Plan.unserved``).
"""


def reason_of(error: Exception) -> str:
    """Return the reason of an error in lower case: the text of the operating system, or else the message."""
    return (getattr(error, "strerror", None) or str(error)).lower()


class InferplanError(Exception):
    """Base of all errors that inferplan raises on purpose; the message is one line."""

    exit_code = 1
    http_status = 500


class SpecError(InferplanError):
    """Raised if a document cannot be read, or contains an impossible value.

    The message names the place (``servers[3].model``), the value, the limit and the fix.
    """

    exit_code = 2
    http_status = 422


class AnalysisError(InferplanError):
    """Raised if the queue of one replica cannot be analysed or sized as requested."""

    exit_code = 2
    http_status = 422


class FitError(InferplanError):
    """Raised if measurements cannot be read, or are too few or too inconsistent to fit a latency model."""

    exit_code = 2
    http_status = 422


class IncompletePlanError(InferplanError):
    """Raised by ``Plan.raise_for_status`` if a server is not served in full."""

    exit_code = 3
    http_status = 409


class MissingExtraError(InferplanError, ImportError):
    """Raised if an optional package is not installed; the message says how to install it."""

    exit_code = 2
    http_status = 500

    def __init__(self, package: str, extra: str) -> None:
        """Create the error from the name of the package, and the extra of inferplan that installs it."""
        super().__init__(package, extra)
        self._package, self._extra = package, extra

    def __str__(self) -> str:
        run = f"pip install -e '.[{self._extra}]'"
        return f"{self._package} is not installed; in a clone of the repository, run: {run}"


class SolverError(InferplanError):
    """Raised if the solver fails, or its result does not pass verification."""

    exit_code = 4
    http_status = 500
