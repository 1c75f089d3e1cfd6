"""``python -m pinchpoint`` is the ``pinchpoint`` command."""

from pinchpoint.cli import main

if __name__ == "__main__":
    main()
