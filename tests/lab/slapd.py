"""A real LDAP server on a node of a lab: TLS with an authority of its own, nothing without encryption."""

from __future__ import annotations

from collections.abc import Sequence

from tests.lab.harness import LabCluster

BASE = "dc=example,dc=com"
READER, PASSWORD = f"cn=reader,{BASE}", "reader-password"
ADMINISTRATOR = f"cn=admin,{BASE}"
AUTHORITY = "/etc/ldap/tls/ca.pem"

_INSTALL = r"""
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
echo 'slapd slapd/no_configuration boolean true' | debconf-set-selections
apt-get install -y -qq --no-install-recommends slapd ldap-utils openssl
mkdir -p /etc/ldap/tls /var/lib/ldap-test
cd /etc/ldap/tls
new="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $new -days 30 -subj /CN=Lab -keyout ca.key -out ca.pem
openssl req -x509 $new -days 30 -subj /CN=Other -keyout other.key -out other.pem
openssl req $new -subj /CN=ctl1 -keyout key.pem -out req.pem
echo subjectAltName=DNS:ctl1 > extensions
openssl x509 -req -in req.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile extensions -out cert.pem
cat > /etc/ldap/slapd.conf <<'END'
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/nis.schema
include /etc/ldap/schema/inetorgperson.schema
attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey' EQUALITY octetStringMatch
  SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY MAY ( sshPublicKey $ uid ) )
pidfile /run/slapd/slapd.pid
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile /etc/ldap/tls/ca.pem
TLSCertificateFile /etc/ldap/tls/cert.pem
TLSCertificateKeyFile /etc/ldap/tls/key.pem
security ssf=128
database mdb
suffix "dc=example,dc=com"
rootdn "cn=admin,dc=example,dc=com"
rootpw admin-password
directory /var/lib/ldap-test
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=reader,dc=example,dc=com" read by * none
END
systemctl stop slapd
cat >> /etc/default/slapd <<'END'
SLAPD_CONF=/etc/ldap/slapd.conf
SLAPD_SERVICES="ldap:/// ldaps:///"
END
slapadd -f /etc/ldap/slapd.conf -l /tmp/base.ldif
chown -R openldap:openldap /etc/ldap/tls /var/lib/ldap-test
systemctl restart slapd
"""
_TREE = f"""\
dn: {BASE}
objectClass: dcObject
objectClass: organization
dc: example
o: Example

dn: {READER}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: reader
userPassword: {PASSWORD}

dn: ou=people,{BASE}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{BASE}
objectClass: organizationalUnit
ou: groups

"""


def user(name: str, uid: int, key: str, employee_type: str = "hpc") -> str:
    """An entry of a user; the home is nowhere, as a directory's often is for a cluster."""
    return (
        f"dn: uid={name},ou=people,{BASE}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\n"
        f"objectClass: ldapPublicKey\nuid: {name}\ncn: {name}\nsn: {name}\nuidNumber: {uid}\ngidNumber: 20000\n"
        f"homeDirectory: /nowhere/{name}\nloginShell: /bin/bash\nemployeeType: {employee_type}\nsshPublicKey: {key}\n\n"
    )


def group(name: str, gid: int, members: Sequence[str] = ()) -> str:
    """An entry of a group that lists login names."""
    listed = "".join(f"memberUid: {each}\n" for each in members)
    return f"dn: cn={name},ou=groups,{BASE}\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {gid}\n{listed}\n"


def install(cluster: LabCluster, node: str, entries: str) -> None:
    """Install slapd with these entries on a node."""
    cluster.root(node, f"cat > /tmp/base.ldif <<'END'\n{_TREE}{entries}END")
    cluster.root(node, _INSTALL)


def modify(cluster: LabCluster, node: str, change: str) -> None:
    """One change in LDIF, as the directory's administrator."""
    _as_administrator(cluster, node, f"ldapmodify LOGIN <<'END'\n{change}\nEND")


def add(cluster: LabCluster, node: str, entries: str) -> None:
    """New entries in LDIF."""
    _as_administrator(cluster, node, f"ldapadd LOGIN <<'END'\n{entries}\nEND")


def delete(cluster: LabCluster, node: str, names: Sequence[str]) -> None:
    """Remove users."""
    listed = " ".join(f"uid={name},ou=people,{BASE}" for name in names)
    _as_administrator(cluster, node, f"ldapdelete LOGIN {listed}")


def _as_administrator(cluster: LabCluster, node: str, command: str) -> None:
    login = f"-x -H ldaps://{node} -D {ADMINISTRATOR} -w admin-password"
    cluster.root(node, f"LDAPTLS_CACERT={AUTHORITY} {command.replace('LOGIN', login)}")
