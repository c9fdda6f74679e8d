"""`python -m deepopsctl`, for where the script is not on the PATH."""

from deepopsctl.cli import main

if __name__ == "__main__":
    main()
