"""What programs on the nodes make of a service that stops within its answer, or that speaks no HTTP."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deepopsctl.node_programs.commands.job_report import prometheus
from deepopsctl.node_programs.services.alert_drain import alertmanager
from deepopsctl.node_programs.services.alert_drain.settings import Settings
from deepopsctl.node_programs.suites.validate_monitoring import web
from tests.support.node_modules import plugin
from tests.support.ports import answering


def grafana(url: str) -> str:
    service = plugin("modules", "grafana_admin").Grafana({"url": url, "user": "admin", "password": "geheim"})
    assert service.health() == {}
    return str(service.trouble)


def raised(error: type[Exception], ask: Callable[[str], object]) -> Callable[[str], str]:
    """A client that raises its own error, as one that returns the message."""

    def asked(url: str) -> str:
        with pytest.raises(error) as caught:
            ask(url)
        return str(caught.value)

    return asked


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
@pytest.mark.parametrize(
    "trouble",
    [
        raised(alertmanager.AskError, lambda url: alertmanager.ask(Settings(url, "hpc", 2, 600))),
        raised(prometheus.PrometheusError, lambda url: prometheus.querying(url, "admin", "geheim")("up", 0)),
        raised(web.NoAnswer, lambda url: web.Service(url).get("/")),
        grafana,
    ],
    ids=["alertmanager", "job summaries", "validate monitoring", "grafana"],
)
def test_a_service_that_stops_within_its_answer_does_not_answer(trouble: Callable[[str], str], answer: bytes) -> None:
    with answering(answer) as port:
        assert trouble(f"http://127.0.0.1:{port}")


def test_a_list_is_no_answer_of_grafanas() -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]") as port:
        assert grafana(f"http://127.0.0.1:{port}") == "what answers is not a Grafana"
