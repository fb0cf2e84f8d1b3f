"""How many threads there may be by affinity and quotas, and which of their errors is raised."""

import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from optimizer.errors import SpecError
from optimizer.parallel import MAX_THREADS, as_done, cgroup_quota, core_count, thread_count


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU affinity")
def test_a_process_that_may_use_one_core_has_one_thread() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from optimizer.parallel import may_start_processes, thread_count; "
        "from rest_server.settings import Settings; settings = Settings(); "
        "print(thread_count(), may_start_processes(), settings.solver_processes, settings.max_studies)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["1", "False", "2", "1"]


def test_there_are_no_more_threads_than_cores() -> None:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    assert core_count() == max(1, math.ceil(min(allowed, cgroup_quota())))
    assert thread_count() == min(core_count(), MAX_THREADS)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, math.inf),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
        # A container sees its own cgroup as the root: 500m of Kubernetes.
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 0.5),
        (  # systemd: CPUQuota=300% of a slice, 150% of the service in it
            {
                "proc/self/cgroup": "0::/a.slice/b.service\n",
                "sys/fs/cgroup/a.slice/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/a.slice/b.service/cpu.max": "150000 100000\n",
            },
            1.5,
        ),
        (  # version 1: a container has the path of the host, and its own quota at the root
            {
                "proc/self/cgroup": "5:memory:/docker/c\n4:cpu,cpuacct:/docker/c\n1:name=systemd:/docker/c\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            2.0,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            math.inf,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "odd\n"}, math.inf),
    ],
)
def test_the_least_quota_of_all_cgroups_counts(files: dict[str, str], cores: float, tmp_path: Path) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "ascii")
    assert cgroup_quota(tmp_path) == cores


def test_error_of_the_first_item_is_raised() -> None:
    later = threading.Event()

    def fail(item: int) -> int:
        if item == 1:
            later.set()
        else:
            later.wait(5)
        raise SpecError(f"item {item}")

    with pytest.raises(SpecError, match="item 0"):
        list(as_done(fail, [0, 1]))
