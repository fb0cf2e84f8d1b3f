"""Files that name a feature outside its folder are few, and each has a reason."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from feature_files import files_naming

REASONS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "feature_files.yaml").read_text("utf-8")
)
"""Reasons by feature and file; a shorter list is welcome, a longer one needs another design."""


@pytest.mark.parametrize("feature", REASONS)
def test_each_file_that_names_a_feature_has_a_reason(feature: str) -> None:
    assert sorted(files_naming(feature)) == sorted(REASONS[feature])
