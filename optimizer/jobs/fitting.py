"""Jobs on profiles from benchmarks: fit, predict, add to a system, show."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from optimizer.studies.figures.figure_document import Figure

if TYPE_CHECKING:
    from optimizer.fitting.adding import WithProfile
    from optimizer.fitting.options import FitOptions, Stated
    from optimizer.fitting.prediction import Predicted
    from optimizer.fitting.profile import FittedProfile


def fit_reports(
    paths: Sequence[str], options: "FitOptions", progress: Callable[[str], None] = lambda _: None
) -> "FittedProfile":
    """Return the profile that best fits the runs of benchmark reports.

    Raises:
        FitError: a report has an unknown format or is incomplete, or there are too few measurements.
        SpecError: a file cannot be read.
    """
    from optimizer.fitting.fit import fit
    from optimizer.fitting.readers.table import distinct_names, read_benchmark

    stated = replace(options.stated, cards=options.key.cards)
    named = zip(paths, distinct_names(paths), strict=True)
    return fit([read_benchmark(path, stated, name) for path, name in named], options, progress)


def predict_points(
    profile: str, points: str, stated: "Stated", tell: Callable[[str], None] = lambda _: None
) -> "list[Predicted]":
    """Predict the rows of a CSV file, or the runs of a benchmark report, with a fitted profile.

    Args:
        profile: path of a file written by `fit`.
        points: path of a CSV file of points, or of a benchmark report.
        stated: facts about the runs that a report does not contain.
        tell: called with each sentence on decisions about the runs of a report.

    Raises:
        FitError: the file is not a profile, or a row is invalid.
        SpecError: a file cannot be read.
    """
    from optimizer.fitting.prediction import predict
    from optimizer.fitting.profile import read_profile
    from optimizer.fitting.readers.table import read_benchmark

    known = read_profile(profile)
    benchmark = read_benchmark(points, replace(stated, cards=known.acc_count))
    for note in benchmark.remarks:
        tell(note)
    return predict(known, benchmark.runs)


def add_profile(profile: str, system: str, model: str | None, accelerator: str | None) -> "WithProfile":
    """Insert a fitted profile into a system, under the given names of model and accelerator.

    Raises:
        FitError: the file is not a profile.
        SpecError: the system cannot be read, or has no such model or accelerator.
    """
    from optimizer.fitting.adding import with_profile
    from optimizer.fitting.profile import read_profile

    return with_profile(system, read_profile(profile), model, accelerator)


def show_fit(profile: str) -> Figure:
    """Return the figure of a fitted profile, which shows measured and predicted times.

    Raises:
        FitError: the file is not a profile.
        SpecError: the file cannot be read.
    """
    from optimizer.fitting.profile import read_profile
    from optimizer.studies.figures.fits import fit_figure

    return fit_figure(read_profile(profile))
