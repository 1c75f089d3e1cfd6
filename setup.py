"""Compiles the BPF programs before the package's files are collected; its metadata stands in setup.cfg."""

import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithBpf(build_py):
    """Without clang or libbpf's headers the package is complete but for them: threads are read through procfs then."""

    def run(self) -> None:
        """Compile, then collect."""
        try:
            subprocess.run(["make", "-s", "-C", "exporter/pinchpoint/bpf"], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no BPF programs (needs make, clang, libbpf-dev): {error}", file=sys.stderr)
        super().run()


setup(cmdclass={"build_py": BuildWithBpf})
