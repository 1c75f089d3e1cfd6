"""``python -m pinchpoint`` is the ``pinchpoint`` command."""

from pinchpoint.cli import start

if __name__ == "__main__":
    start()
