"""The command behind `make box`: build a box's image unless it is there, and register it in Vagrant."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from deepopsctl.errors import DeepOpsError
from deepopsctl.lab.image import own_mirror
from deepopsctl.lab.layout import DEFAULT_OS
from tests.vm.box.build import cache_directory, ensure_image, image_path
from tests.vm.box.recipe import SYSTEMS, BoxRecipe
from tests.vm.box.register import register


def notify(text: str) -> None:
    """For people: stderr."""
    sys.stderr.write(text + "\n")


def build_by_sudo(arguments: list[str]) -> int:
    """Build as root into this user's cache; Vagrant's boxes stay this user's business. The exit code."""
    notify("building a box needs root: sudo may ask for your password")
    environment = ("env", f"XDG_CACHE_HOME={cache_directory().parent.parent}")
    argv = ("sudo", *environment, sys.executable, "-m", "tests.vm.box", *arguments, "--image-only")
    try:
        return subprocess.run(argv, stdout=subprocess.DEVNULL, check=False).returncode
    except FileNotFoundError:
        notify("error: sudo is not installed\nhint: run this as root")
        return 5


def main() -> int:
    """Build and register; prints the image's path. The exit code."""
    parser = argparse.ArgumentParser(prog="make-box", description=__doc__)
    parser.add_argument("os", nargs="?", default=DEFAULT_OS, choices=SYSTEMS)
    parser.add_argument("--with", dest="extra", default="", metavar="PACKAGES", help="install these as well (a,b,c)")
    parser.add_argument("--rebuild", action="store_true", help="build again, to get newer packages")
    parser.add_argument("--image-only", action="store_true", help="leave Vagrant alone")
    options = parser.parse_args()
    recipe = BoxRecipe(options.os, own_mirror(), tuple(sorted(filter(None, options.extra.split(",")))))
    rebuild = options.rebuild
    if os.geteuid() != 0 and (rebuild or not image_path(recipe).exists()):
        if code := build_by_sudo(sys.argv[1:]):
            return code
        rebuild = False
    try:
        image = ensure_image(recipe, notify, rebuild=rebuild)
        if not options.image_only:
            register(recipe.name, image, notify)
            notify(f"{recipe.name} {image.version} is what Vagrant has")
    except DeepOpsError as err:
        notify(f"error: {err.message}")
        if err.hint:
            notify(f"hint: {err.hint}")
        return int(err.exit_code)
    sys.stdout.write(f"{image.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
