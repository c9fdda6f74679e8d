"""Open OnDemand's package as a stand-in: its paths, its drop-in of Apache's unit, and a generator that is not theirs.

The generator writes an Apache site of the keys that say how users come in (TLS, OpenID Connect, who may), so that
Debian's Apache and mod_auth_openidc read what the role writes. `nginx_stage` notes how it is called. Nothing in them
came from there.
"""

from __future__ import annotations

from tests.lab.aptrepo import Stub

GENERATOR = "opt/ood/ood-portal-generator/sbin/update_ood_portal"
STAGE = "opt/ood/nginx_stage/sbin/nginx_stage"
SITE = "/etc/apache2/sites-available/ood-portal.conf"
_GENERATE = f"""\
#!/usr/bin/python3
import yaml
with open("/etc/ood/config/ood_portal.yml") as stream:
    portal = yaml.safe_load(stream)
lines = ["<VirtualHost *:443>", f"ServerName {{portal['servername']}}", "SSLEngine On", *portal["ssl"]]
if portal.get("oidc_uri"):
    lines += [
        f"OIDCProviderMetadataURL {{portal['oidc_provider_metadata_url']}}",
        f"OIDCClientID {{portal['oidc_client_id']}}",
        f"OIDCClientSecret {{portal['oidc_client_secret']}}", f"OIDCRedirectURI {{portal['oidc_uri']}}",
        f"OIDCRemoteUserClaim {{portal['oidc_remote_user_claim']}}", f'OIDCScope "{{portal["oidc_scope"]}}"',
        f"OIDCCryptoPassphrase {{portal['oidc_crypto_passphrase']}}",
        *(f"{{name}} {{value}}" for name, value in sorted(portal["oidc_settings"].items())),
        f"<Location {{portal['oidc_uri']}}>", *portal["auth"], "</Location>",
    ]
lines += ["<Location /pun>", *portal["auth"], 'Header set X-User "expr=%{{REMOTE_USER}}"', "</Location>"]
lines += ["</VirtualHost>", ""]
with open("{SITE}", "w") as stream:
    stream.write("\\n".join(lines))
"""
_RELOAD = f"""\
[Service]
ExecStartPre=-/{GENERATOR} --rpm
ExecReload=
ExecReload=-/{GENERATOR} --rpm
ExecReload=/usr/sbin/apachectl graceful
"""
_INSTALL = f"""\
#!/bin/sh
set -e
a2enmod -q headers >/dev/null
mkdir -p /var/www/html/pun
echo dashboard > /var/www/html/pun/index.html
touch {SITE}
ln -sf ../sites-available/ood-portal.conf /etc/apache2/sites-enabled/ood-portal.conf
"""


def packages() -> list[Stub]:
    """What a site has in its repository."""
    return [
        Stub(
            "ondemand", "4.2.0-1", "apache2, sudo, python3-yaml",
            {
                GENERATOR: _GENERATE,
                STAGE: '#!/bin/sh\necho "$@" >> /run/nginx_stage.calls\n',
                "usr/lib/systemd/system/apache2.service.d/ood-portal.conf": _RELOAD,
                "etc/sudoers.d/ood": f"www-data ALL=(ALL) NOPASSWD: /{STAGE}\n",
                "var/www/ood/apps/sys/dashboard/manifest.yml": "name: Dashboard\n",
            },
            postinst=_INSTALL,
        )
    ]  # fmt: skip
