#!/usr/bin/python
"""Grafana answers, and its administrator has the password that the cluster has for it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: grafana_admin
short_description: Wait for Grafana, and give its administrator the wanted password
description:
  - Waits until Grafana says that its database is well, and logs in.
  - Grafana reads a password from its configuration only when it makes its database. Where another one is in force, the
    wanted one is set by Grafana's own program, which takes it from standard input.
  - In check mode nothing is asked and nothing is done.
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  url: {description: Where it answers., type: str, required: true}
  user: {description: Name of the administrator., type: str, required: true}
  password: {description: Their password., type: str, required: true}
  certificate: {description: File with the certificate that it was given to show; none for plain HTTP., type: path}
  unit: {description: Its unit., type: str, required: true}
  wait: {description: Seconds to wait for it; its first start makes the database., type: int, default: 300}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Grafana's administrator
  deepopsctl.cluster.grafana_admin:
    component: monitoring
    step: grafana_admin
    digest: "{{ deepops_digests.monitoring }}"
    url: http://192.0.2.1:3000
    user: admin
    password: "{{ grafana_admin_password }}"
    unit: grafana-server.service
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
version: {description: Grafana's version., type: str, returned: always}
"""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command as node_command,
    errors as node_errors,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until

TIMEOUT_S = 20
# X509_V_FLAG_PARTIAL_CHAIN: the file may have the certificate alone, without who signed it
PARTIAL_CHAIN = 0x80000
# of its package, for the settings and the database of the service
RESET = ["grafana-cli", "admin", "reset-admin-password", "--password-from-stdin"]
RESET_S = 120


class Grafana:
    """Asks it over HTTP."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.url = wanted["url"]
        login = f"{wanted['user']}:{wanted['password']}"
        self.login = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if self.url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=trusting(wanted["certificate"])))
        self.opener = urllib.request.build_opener(*handlers)
        self.trouble = "no answer"

    def health(self) -> dict[str, Any]:
        """What it says of itself; {} where it does not answer, and why is its `trouble`."""
        try:
            with self.opener.open(self.url + "/api/health", timeout=TIMEOUT_S) as answer:
                health = json.load(answer)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # HTTP's own errors as well: a database that is not well is a 503
            self.trouble = str(error)
            return {}
        if not isinstance(health, dict):
            self.trouble = "what answers is not a Grafana"
            return {}
        self.trouble = f"its database is {health.get('database')}"
        return health

    def knows_the_password(self) -> bool:
        """Whether it lets the administrator in."""
        request = urllib.request.Request(self.url + "/api/user", headers=self.login)  # noqa: S310 (http or https)
        try:
            with self.opener.open(request, timeout=TIMEOUT_S):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 401:
                return False
            raise node_errors.HintedError(
                f"{self.url} answers HTTP {error.code} to its administrator", "see `journalctl -u grafana-server`"
            ) from error


def trusting(path: str) -> ssl.SSLContext:
    """It is on this node and shows what it was given: for which name that is matters to browsers alone."""
    context = ssl.create_default_context(cafile=path)
    context.check_hostname = False
    context.verify_flags |= PARTIAL_CHAIN
    return context


def wait_until_healthy(grafana: Grafana, unit: str, seconds: float) -> str:
    """Grafana's version, once its database is there."""
    health = wait_until(grafana.health, seconds, 1, lambda answer: answer.get("database") == "ok")
    if health.get("database") != "ok":
        raise node_errors.HintedError(
            f"{grafana.url} is not well within {seconds} s: {grafana.trouble}",
            node_services.journal_tail(unit) or f"see `journalctl -u {unit}` on the node",
        )
    return str(health.get("version", ""))


def set_password(password: str) -> None:
    """By Grafana's own program."""
    result = node_command.run_merged(RESET, RESET_S, stdin=password + "\n")
    if result.status == node_command.MISSING:
        raise node_errors.HintedError(f"cannot run grafana-cli: {result.message}", "is the package grafana whole?")
    if not result.ok:
        output = result.message.replace(password, "...").splitlines()[-3:]
        raise node_errors.HintedError(
            f"grafana-cli can't set the administrator's password: {' '.join(output)}",
            "was the user `admin` renamed or removed in Grafana? its user with the id 1 has to be there",
        )


def converge(module: AnsibleModule, noted: node_changes.Noted) -> str:
    """Grafana's version; the administrator gets in afterwards."""
    wanted = module.params
    grafana = Grafana(wanted)
    version = wait_until_healthy(grafana, wanted["unit"], wanted["wait"])
    if not grafana.knows_the_password():
        set_password(wanted["password"])
        noted.did("password", f"Grafana's {wanted['user']}", "set")
        if not grafana.knows_the_password():
            raise node_errors.HintedError(
                f"{grafana.url} refuses its administrator's new password",
                "is [auth.basic] off in its grafana.ini? after several attempts it locks a user for 5 minutes",
            )
    node_record.save(wanted["component"], wanted["step"], wanted["digest"], node_record.items())
    return version


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **node_record.STEP,
            "url": {"required": True},
            "user": {"required": True},
            "password": {"required": True, "no_log": True},
            "certificate": {"type": "path"},
            "unit": {"required": True},
            "wait": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    noted, version = node_changes.Noted(module.check_mode), ""
    if not module.check_mode:
        with node_errors.fail_on_error(module.fail_json):
            version = converge(module, noted)
    module.exit_json(**noted.result(version=version))


if __name__ == "__main__":
    main()
