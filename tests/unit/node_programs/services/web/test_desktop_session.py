"""The desktop in a job: it listens for its user alone, and takes no display that another user can reach."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from deepopsctl.node_programs.services.web.desktop_session import DesktopError, cookie, hold, server, verify_place

OWN = os.getuid()
OTHER = OWN + 1


@pytest.fixture
def display(tmp_path: Path) -> Iterator[Path]:
    """A socket as X makes one, in a file alone."""
    path = tmp_path / "X7"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        yield path


@pytest.fixture
def squatter(display: Path) -> Iterator[socket.socket]:
    """Who listens under the display's name without a file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(f"\0{display}")
        listener.listen()
        yield listener


def test_the_x_server_listens_on_no_port_and_shows_itself_to_its_user_alone() -> None:
    words = server("/run/x/desktop", "/run/x/cookie", 4)

    pairs = set(pairwise(words))
    assert {("-nolisten", "tcp"), ("-rfbport", "-1"), ("-rfbunixmode", "0600"), ("-auth", "/run/x/cookie")} <= pairs


def test_the_cookie_is_for_any_display_of_any_host() -> None:
    assert cookie(b"s" * 16) == b"\xff\xff\0\0\0\0\0\x12MIT-MAGIC-COOKIE-1\0\x10" + b"s" * 16


def test_a_place_without_a_directory_gets_one(tmp_path: Path) -> None:
    verify_place(str(tmp_path / "x"), OWN)

    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o700


def test_a_place_of_root_is_taken() -> None:
    verify_place("/tmp", OTHER)


def test_a_place_of_another_user_is_refused(tmp_path: Path) -> None:
    if OWN == 0:
        os.chown(tmp_path, 12345, -1)

    with pytest.raises(DesktopError, match="belongs to another user"):
        verify_place(str(tmp_path), OTHER)


def test_a_place_whose_sockets_others_can_replace_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    with pytest.raises(DesktopError, match="sticky"):
        verify_place(str(tmp_path), OWN)


def test_a_link_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to(tmp_path)

    with pytest.raises(DesktopError, match="belongs to another user"):
        verify_place(str(tmp_path / "x"), OWN)


def test_no_one_can_listen_in_place_of_a_server_that_has_only_a_file(display: Path) -> None:
    with hold(str(display), OWN), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as late:
        with pytest.raises(OSError, match="in use"):
            late.bind(f"\0{display}")
        # and clients continue with the file
        with pytest.raises(ConnectionRefusedError):
            late.connect(f"\0{display}")


@pytest.mark.usefixtures("squatter")
def test_a_server_of_the_same_user_is_taken(display: Path) -> None:
    hold(str(display), OWN).close()


@pytest.mark.usefixtures("squatter")
def test_a_display_of_another_user_is_refused(display: Path) -> None:
    with pytest.raises(DesktopError, match=f"uid {OWN}"):
        hold(str(display), OTHER)


def test_a_listener_of_another_user_is_refused(
    display: Path, squatter: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what the kernel says of the other end, as if it were another user's
    monkeypatch.setattr("deepopsctl.node_programs.services.web.desktop_session.peer", lambda _: OTHER)

    with pytest.raises(DesktopError, match=f"uid {OTHER}"):
        hold(str(display), OWN)
