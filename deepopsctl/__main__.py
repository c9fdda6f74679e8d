"""Where the program begins: as the script, and as `python -m deepopsctl`.

Ctrl-C in the moments before the command line is loaded ends it as at any other time: in a word, with status 130.
"""

import os
import signal


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


def _at_once() -> None:
    # a shell has it ignored for what runs in its background
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def main() -> None:
    """Load the command line, and run it."""
    _at_once()
    from deepopsctl.cli.main import main as command_line

    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        command_line()
    except KeyboardInterrupt:
        _leave()
    finally:
        _at_once()


if __name__ == "__main__":
    main()
