"""Receivers and routes of Alertmanager, from a site's settings and the vault. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deepopsctl.monitoring.alert_rules import SEVERITIES, WATCHDOG
from deepopsctl.text.answers import items, listed, mapping, mappings
from deepopsctl.text.values import suggest

# Alerts without a route go here: visible in Prometheus, Grafana and amtool, and not sent.
NOBODY = "nobody"
WAYS = ("email", "slack", "webhook", "alertmanager")
ROUTE_KEYS = ("receivers", "severity", "match", "watchdog", "repeat", "continue")
GROUPING: Mapping[str, object] = {"by": ["alertname", "cluster"], "wait": "30s", "interval": "5m", "repeat": "12h"}
WATCHDOG_REPEAT = "5m"
WHERE = "monitoring_alert_secrets in inventory/group_vars/all/secrets.yml"

_TITLE = (
    '{{ if eq .Status "firing" }}{{ .Alerts.Firing | len }} firing{{ else }}over{{ end }}: '
    "{{ .CommonLabels.alertname }} ({{ .CommonLabels.cluster }})"
)
_TEXT = (
    '{{ range .Alerts }}{{ if eq .Status "resolved" }}over: {{ end }}{{ .Annotations.summary }}\n{{ end }}'
    "{{ .CommonAnnotations.action }}"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A site's settings: `alertmanager_receivers`, `_routes`, `_email` and `_grouping`."""

    receivers: Mapping[str, object] = field(default_factory=dict)
    routes: Sequence[object] = ()
    email: Mapping[str, object] = field(default_factory=dict)
    grouping: Mapping[str, object] = field(default_factory=dict)
    # from the vault: in no log, diff or argument
    secrets: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Routing:
    """What is wrong with the settings; without a problem the keys of alertmanager.yml, which have secrets in them."""

    problems: tuple[str, ...] = ()
    mail: Mapping[str, object] = field(default_factory=dict, repr=False)
    grouping: Mapping[str, object] = field(default_factory=dict)
    routes: Sequence[Mapping[str, object]] = ()
    receivers: Sequence[Mapping[str, object]] = field(default=(), repr=False)


def wanted_by(
    receivers: object, routes: object, email: object, grouping: object, secrets: Mapping[str, object]
) -> Wanted:
    """The settings as a site wrote them: values of a wrong type are refused as unknown."""
    return Wanted(
        receivers if isinstance(receivers, Mapping) else {str(receivers): None},
        [*listed(routes)],
        email if isinstance(email, Mapping) else {str(email): None},
        grouping if isinstance(grouping, Mapping) else {str(grouping): None},
        secrets,
    )


def routing(wanted: Wanted) -> Routing:
    """What alertmanager.yml has of a site."""
    problems = [*_receiver_faults(wanted), *_route_faults(wanted), *_other_faults(wanted)]
    if problems:
        return Routing(tuple(problems))
    routes = [_route(route) for route in _routes(wanted)]
    needed = dict.fromkeys(str(route["receiver"]) for route in routes)
    return Routing(
        mail=_mail_server(wanted),
        grouping=_grouped({**GROUPING, **wanted.grouping}),
        routes=[
            *(route for route in routes if f'alertname="{WATCHDOG}"' in _matchers(route)),
            {"receiver": NOBODY, "matchers": ['severity="none"']},
            *(route for route in routes if f'alertname="{WATCHDOG}"' not in _matchers(route)),
        ],
        receivers=[_receiver(name, wanted) for name in needed],
    )


def _grouped(grouping: Mapping[str, object]) -> dict[str, object]:
    return {
        "group_by": grouping["by"],
        "group_wait": grouping["wait"],
        "group_interval": grouping["interval"],
        "repeat_interval": grouping["repeat"],
    }


def _routes(wanted: Wanted) -> Iterator[Mapping[str, object]]:
    """The configured routes; without any, every alert goes to every receiver."""
    routes = mappings(wanted.routes)
    if routes or not wanted.receivers:
        yield from routes
    else:
        yield {"receivers": list(wanted.receivers)}


def _route(route: Mapping[str, object]) -> dict[str, object]:
    matchers = [f'alertname="{WATCHDOG}"'] if route.get("watchdog") else []
    severities = _listed(route.get("severity"))
    matchers += [f'severity=~"{"|".join(severities)}"'] if severities else []
    for label, pattern in mapping(route.get("match")).items():
        escaped = str(pattern).replace("\\", "\\\\").replace('"', '\\"')
        matchers.append(f'{label}=~"{escaped}"')
    repeat = route.get("repeat", WATCHDOG_REPEAT if route.get("watchdog") else None)
    return {
        "receiver": _together(_listed(route["receivers"])),
        **({"matchers": matchers} if matchers else {}),
        **({"repeat_interval": repeat, "group_interval": repeat} if route.get("watchdog") else {}),
        **({"repeat_interval": repeat} if repeat else {}),
        **({"continue": True} if route.get("continue") else {}),
    }


def _matchers(route: Mapping[str, object]) -> list[str]:
    return _listed(route.get("matchers"))


def _together(names: Sequence[str]) -> str:
    """A route of Alertmanager's has one receiver: this one has what all of these have."""
    return ", ".join(names)


def _receiver(together: str, wanted: Wanted) -> dict[str, object]:
    configs_by_type: dict[str, list[object]] = {}
    for name in together.split(", "):
        for way, how in mapping(wanted.receivers[name]).items():
            for key, configs in _configs(str(way), how, wanted):
                configs_by_type.setdefault(key, []).extend(configs)
    return {"name": together, **configs_by_type}


def _configs(way: str, written: object, wanted: Wanted) -> Iterator[tuple[str, list[object]]]:
    if way == "email":
        yield "email_configs", [{"to": address, "send_resolved": True} for address in _listed(written)]
        return
    how = mapping(written)
    if way == "alertmanager":
        yield from ((str(key), [*items(value)]) for key, value in how.items())
    elif way == "slack":
        channel = {"channel": how["channel"]} if "channel" in how else {}
        slack = {"api_url": _url(how, wanted), **channel, "send_resolved": True, "title": _TITLE, "text": _TEXT}
        yield "slack_configs", [slack]
    else:
        login = {"username": how.get("user"), "password": wanted.secrets.get(str(how.get("password_secret")))}
        more = {"http_config": {"basic_auth": login}} if "user" in how else {}
        yield "webhook_configs", [{"url": _url(how, wanted), "send_resolved": True, **more}]


def _url(how: Mapping[str, object], wanted: Wanted) -> object:
    return wanted.secrets[str(how["secret"])] if "secret" in how else how["url"]


def _mail_server(wanted: Wanted) -> dict[str, object]:
    email = wanted.email
    if not email:
        return {}
    login = {"smtp_auth_username": email["user"]} if "user" in email else {}
    login |= {"smtp_auth_password": wanted.secrets[str(email["secret"])]} if "secret" in email else {}
    return {
        "smtp_smarthost": email["server"],
        "smtp_from": email["from"],
        "smtp_require_tls": email.get("tls", True),
        **login,
    }


def _receiver_faults(wanted: Wanted) -> Iterator[str]:
    for name, channels in wanted.receivers.items():
        where = f"alertmanager_receivers: {name}"
        if not isinstance(name, str) or name == NOBODY or "," in name:
            yield f"{where}: choose another name"
        elif not isinstance(channels, Mapping) or not channels:
            yield f"{where} has no channel: write {{email: [ops@example.com]}}, or {', '.join(WAYS[1:])}"
        else:
            for way, how in channels.items():
                yield from (f"{where}: {fault}" for fault in _way_faults(str(way), how, wanted))


def _way_faults(way: str, how: object, wanted: Wanted) -> Iterator[str]:
    if way not in WAYS:
        yield f"{way} is not a channel; {suggest(way, WAYS)}"
    elif way == "email":
        if not wanted.email:
            yield "email needs a server: set alertmanager_email: {server: 'mail.example.com:587', from: ...}"
        if isinstance(how, Mapping) or not _listed(how) or not all("@" in address for address in _listed(how)):
            yield "email is a list of addresses"
    elif not isinstance(how, Mapping):
        yield f"{way} is not a mapping"
    elif way == "alertmanager":
        wrong = [key for key, value in how.items() if not str(key).endswith("_configs") or not isinstance(value, list)]
        yield from (f"alertmanager: {key} is not a list of Alertmanager's, such as pagerduty_configs" for key in wrong)
    else:
        yield from _url_faults(way, how, wanted)


def _url_faults(way: str, how: Mapping[str, object], wanted: Wanted) -> Iterator[str]:
    known = ("url", "secret", *(("channel",) if way == "slack" else ("user", "password_secret")))
    yield from (f"{way}: {key} is not known; {suggest(str(key), known)}" for key in how if key not in known)
    if ("url" in how) == ("secret" in how):
        yield f"{way}: give its address as url, or secret: NAME where the address is in the vault"
    if way == "webhook" and "user" in how and "password_secret" not in how:
        yield f"{way}: user needs password_secret, the name of its password in the vault"
    yield from _missing((str(how[key]) for key in ("secret", "password_secret") if key in how), wanted)
    url = str(_url(how, wanted)) if "url" in how or str(how.get("secret")) in wanted.secrets else "https://"
    if not url.startswith(("http://", "https://")):
        yield f"{way}: its address does not begin with http:// or https://"


def _missing(needed: Iterable[str], wanted: Wanted) -> Iterator[str]:
    for name in needed:
        if not wanted.secrets.get(name):
            yield f"the vault has no secret {name}: add it to {WHERE}"


def _route_faults(wanted: Wanted) -> Iterator[str]:
    for number, route in enumerate(wanted.routes, 1):
        where = f"alertmanager_routes: number {number}"
        if not isinstance(route, Mapping) or not _listed(route.get("receivers")):
            yield f"{where} names no receivers: write {{severity: critical, receivers: [NAME]}}"
            continue
        yield from (
            f"{where}: {key} is not known; {suggest(str(key), ROUTE_KEYS)}" for key in route if key not in ROUTE_KEYS
        )
        for name in _listed(route["receivers"]):
            if name not in wanted.receivers:
                yield f"{where}: alertmanager_receivers has no {name}"
        for severity in _listed(route.get("severity")):
            if severity not in SEVERITIES:
                yield f"{where}: no alert has the severity {severity}; {suggest(severity, SEVERITIES)}"
        if not isinstance(route.get("match", {}), Mapping):
            yield f"{where}: match is not a mapping: write {{alertname: 'Gpu.*'}}"


def _other_faults(wanted: Wanted) -> Iterator[str]:
    known = ("server", "from", "user", "secret", "tls")
    yield from (
        f"alertmanager_email: {key} is not known; {suggest(str(key), known)}"
        for key in wanted.email
        if key not in known
    )
    if wanted.email:
        yield from (f"alertmanager_email has no {key}" for key in ("server", "from") if key not in wanted.email)
        if "user" in wanted.email and "secret" not in wanted.email:
            yield "alertmanager_email: user needs secret, the name of its password in the vault"
        yield from _missing((str(wanted.email["secret"]),) if "secret" in wanted.email else (), wanted)
    for key in wanted.grouping:
        if key not in GROUPING:
            yield f"alertmanager_grouping: {key} is not known; {suggest(str(key), GROUPING)}"


def _listed(value: object) -> list[str]:
    return [str(item) for item in listed(value or [])]
