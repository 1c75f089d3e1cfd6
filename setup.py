"""Compiles the BPF programs before the package's files are collected; its metadata stands in setup.cfg."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SOURCES = Path("exporter/pinchpoint/bpf")
WITHOUT = "PINCHPOINT_WITHOUT_BPF"
"""An environment variable; with the value 1 it asks for a package without BPF programs."""


class BuildWithBpf(build_py):
    """A package without its BPF programs looks complete and costs its hosts far more: nobody gets one by accident."""

    def run(self) -> None:
        """Compile, then collect."""
        if os.environ.get(WITHOUT) != "1":
            try:
                subprocess.run(["make", "-s", "-C", SOURCES], check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                if not self.editable_mode:  # a checkout has `make bpf`
                    sys.exit(
                        f"pinchpoint: no BPF programs: {error}\n"
                        "Install make, clang and libbpf's headers (Debian: make clang libbpf-dev), or set "
                        f"{WITHOUT}=1 for a package without them, which reads threads through procfs."
                    )
        super().run()

    def find_data_files(self, package: str, src_dir: str) -> list[str]:
        """Return what a package has besides its modules."""
        found: list[str] = super().find_data_files(package, src_dir)
        return [file for file in found if os.environ.get(WITHOUT) != "1" or not file.endswith(".bpf.o")]


setup(cmdclass={"build_py": BuildWithBpf})
