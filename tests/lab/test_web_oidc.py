"""Login to the web pages by an identity provider, in a real browser, and what a hostile provider's user gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Response

from tests.lab.chromium import needs_chromium
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster
from tests.lab.oidc import Provider, authorize

pytestmark = needs_chromium
HOST = "ctl1"
SECRET = "%told to+no one/="
VALID = {"preferred_username": "alice"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """One node, with the pages and two users without passwords."""
    with fresh_cluster(f"{PREFIX}-web-oidc", tmp_path_factory, "--single") as made:
        Provider(made, HOST).deploy(SECRET, web_host=HOST)
        yield made


@pytest.fixture(scope="module")
def provider(cluster: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Provider:
    return Provider(cluster, HOST).start(tmp_path_factory.mktemp("provider"))


def log_in(page: Page, subject: str) -> Response:
    """As this user of the provider; what JupyterHub answers at the end."""
    page.goto(f"https://{HOST}/hub/login?next=%2Fhub%2Fjobs")
    page.get_by_role("button", name="Log in with Example University").click()
    return authorize(page, subject, f"https://{HOST}/hub/(jobs|oauth_callback)")


def log(cluster: LabCluster) -> str:
    return cluster.root(HOST, "journalctl -u deepops-web-hub -o cat")


def test_a_user_of_the_provider_logs_in_to_the_account_of_that_name(
    cluster: LabCluster, provider: Provider, page: Page
) -> None:
    provider.knows("4711", **VALID)

    log_in(page, "4711")

    assert page.url == f"https://{HOST}/hub/jobs"
    assert "alice" in page.content()
    assert "audit: login user='alice' by=provider" in log(cluster)


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ({}, "sends no preferred_username"),
        ({"preferred_username": "root"}, "by a link only"),
        ({"preferred_username": "ubuntu"}, "by a link only"),
        ({"preferred_username": "www-data"}, "not the name of an account that may log in"),
        ({"preferred_username": "nobody-knows"}, "not the name of an account that may log in"),
        ({"preferred_username": "ALICE"}, "not the name of an account that may log in"),
        ({"preferred_username": "alice@example.com"}, "not the name of an account that may log in"),
        ({"preferred_username": "../alice"}, "not the name of an account that may log in"),
        ({"preferred_username": "alice/../mallory"}, "not the name of an account that may log in"),
        ({"preferred_username": "alice\nroot"}, "not the name of an account that may log in"),
        ({"preferred_username": ["alice"]}, "sends no preferred_username"),
        ({**VALID, "iss": "https://provider.example.com"}, "token is not valid: InvalidIssuerError"),
        ({**VALID, "aud": "another"}, "token is not valid: InvalidAudienceError"),
        ({**VALID, "exp": 1}, "token is not valid: ExpiredSignatureError"),
        ({**VALID, "azp": "another"}, "for another application"),
        ({**VALID, "nonce": "of another login"}, "not of this login"),
        ({**VALID, "forged": True}, "token is not valid: InvalidSignatureError"),
    ],
)
def test_whom_the_provider_may_not_log_in(provider: Provider, page: Page, claims: dict[str, object], text: str) -> None:
    provider.knows("hostile", **claims)

    answer = log_in(page, "hostile")

    assert answer.status == 403
    assert text in page.inner_text("main, body")
    page.goto(f"https://{HOST}/hub/jobs")
    assert "/hub/login" in page.url


def test_what_one_browser_brought_back_logs_in_no_other(provider: Provider, browser: Browser, page: Page) -> None:
    provider.knows("4711", **VALID)
    page.goto(f"https://{HOST}/hub/oauth_login")
    stolen = provider.sends_back(page.url, "4711")
    with browser.new_context(ignore_https_errors=True) as other:
        victim = other.new_page()
        for begins in (False, True):
            if begins:
                victim.goto(f"https://{HOST}/hub/oauth_login")
            answer = victim.goto(stolen)
            assert answer is not None
            assert answer.status == 400
            assert "begun elsewhere" in victim.inner_text("body")


def test_no_one_is_sent_away_from_these_pages(provider: Provider, page: Page) -> None:
    provider.knows("4711", **VALID)
    page.goto(f"https://{HOST}/hub/oauth_login?next=//provider.example.com%5C/hub/jobs")
    page.get_by_placeholder("sub").fill("4711")
    page.get_by_role("button", name="Authorize").click()
    page.wait_for_url("**/hub/**")

    assert page.url.startswith(f"https://{HOST}/")


def test_a_provider_that_is_away_is_said_and_links_go_on(cluster: LabCluster, provider: Provider, page: Page) -> None:
    cluster.root(HOST, "systemctl restart deepops-web-hub; systemctl kill -s STOP provider")
    try:
        url = cluster.root(HOST, "until su - alice -c web 2>/dev/null; do sleep 1; done").split()[0]
        answer = page.goto(f"https://{HOST}/hub/oauth_login")
        assert answer is not None
        assert answer.status == 503
        assert "does not answer" in page.inner_text("body")
        page.goto(url)
        page.get_by_role("button", name="Log in as alice").click()
        page.wait_for_url("**/hub/**")
        assert "/login" not in page.url
    finally:
        cluster.root(HOST, "systemctl kill -s CONT provider")


def test_the_secret_is_in_one_file_that_users_can_not_read(cluster: LabCluster) -> None:
    place = "/etc/deepopsctl/web/oidc.secret"

    assert cluster.root(HOST, f"stat -c '%a %U %G' {place}").strip() == "640 root haproxy"
    assert cluster.root(HOST, f"cat {place}").strip() == SECRET
    assert SECRET not in log(cluster)
    elsewhere = f"grep -rlFf {place} /etc /run /var/log /var/lib/deepopsctl /proc/[0-9]*/cmdline 2>/dev/null || true"
    assert cluster.root(HOST, elsewhere).split() == [place]
    runs = [path for path in (cluster.directory / "runs").rglob("*") if path.is_file()]
    assert runs
    assert not [path for path in runs if SECRET.encode() in path.read_bytes()]


def test_a_second_deploy_changes_nothing(cluster: LabCluster) -> None:
    assert set(cluster.changed(cluster.parsed("deploy", "web")).values()) == {0}
