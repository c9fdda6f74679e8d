"""An accounting database on a MariaDB that others run: slurmdbd, backups and doctor use it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from deepopsctl.cluster import secrets
from deepopsctl.cluster.directory import ClusterDir
from tests.lab.harness import PREFIX, SETTINGS, LabCluster, fresh_cluster
from tests.lab.leaks import Leaks

NAME = f"{PREFIX}-database"
# no node of the cluster's: the database server of the university
SERVER = "login1"
# as an older server is: without TLS
SITE = "[mysqld]\nbind_address = 0.0.0.0\nloose_innodb_snapshot_isolation = OFF\ninnodb_lock_wait_timeout = 900\n"
SERVE = f"""
export DEBIAN_FRONTEND=noninteractive; exec 2>&1; set -e
apt-get -qq update; apt-get -qq install --no-install-recommends mariadb-server openssl >/tmp/log
printf '{SITE}skip_ssl\n' > /etc/mysql/mariadb.conf.d/99-site.cnf
systemctl restart mariadb
"""
CA = "/etc/ssl/certs/university.pem"
CERTIFY = f"""
cd /etc/mysql; openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=db -addext "subjectAltName=IP:$1" \
  -keyout key.pem -out cert.pem 2>/dev/null
chown mysql key.pem
printf '{SITE}ssl_cert=/etc/mysql/cert.pem\nssl_key=/etc/mysql/key.pem\n' > /etc/mysql/mariadb.conf.d/99-site.cnf
systemctl restart mariadb; cat cert.pem
"""

pytestmark = pytest.mark.timeout(2400)


@dataclass(frozen=True)
class Elsewhere:
    """The cluster, and where its database server is."""

    lab: LabCluster
    address: str
    leaks: Leaks

    @property
    def password(self) -> str:
        """The password of slurmdbd's user, in the vault."""
        directory = ClusterDir(self.lab.directory)
        return secrets.read(directory.secrets, directory.vault_password)["slurm_dbd_password"]

    def sql(self, statement: str) -> str:
        """Run a statement as the server's administrator."""
        return self.lab.root(SERVER, f"mariadb --skip-ssl-verify-server-cert -N <<'END'\n{statement}\nEND\n")

    def set(self, **settings: str) -> None:
        """Add to settings.yml."""
        with (self.lab.directory / SETTINGS).open("a", encoding="utf-8") as stream:
            stream.writelines(f"{name}: {value}\n" for name, value in settings.items())


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with fresh_cluster(NAME, tmp_path_factory, "--compute", "1", "--login", "1") as lab:
        lab.root(SERVER, SERVE)
        spec = lab.directory / "cluster.yml"
        lines = spec.read_text("utf-8").splitlines(keepends=True)
        spec.write_text("".join(line for line in lines if "[login]" not in line), "utf-8")
        made = Elsewhere(lab, lab.root(SERVER, "hostname -I").split()[0], Leaks(lab))
        made.set(slurm_dbd_server=made.address, slurm_backup_repository="/backup")
        yield made


def database_check(made: Elsewhere) -> dict[str, str]:
    """The doctor's word on the database."""
    document = json.loads(made.lab.deepopsctl("doctor", "--json", ok=False).stdout)
    (check,) = (check for check in document["checks"] if check["name"] == "database")
    return dict(check)


def test_a_login_that_the_server_refuses_stops_the_deploy_before_slurmdbd_has_it(elsewhere: Elsewhere) -> None:
    assert database_check(elsewhere)["status"] == "pass"

    (failure,) = elsewhere.lab.deploy(ok=False)["failures"]

    assert f"the database server {elsewhere.address} port 3306 refuses slurm: " in failure["message"]
    elsewhere.lab.root("ctl1", "! test -e /etc/slurm/slurmdbd.conf && ! test -e /etc/deepopsctl/database.cnf")
    # what it says is what helps
    statements = re.findall(r"(?:CREATE|ALTER|GRANT)[^;]*;", failure["hint"])
    elsewhere.sql(" ".join(statements).replace("PASSWORD", elsewhere.password))


def test_slurmdbd_uses_the_server_and_none_is_installed(elsewhere: Elsewhere) -> None:
    lab = elsewhere.lab

    assert json.loads(elsewhere.leaks.run("deploy", "--diff", "--json").stdout)["ok"]

    job = lab.submit("true", "--chdir=/tmp", "--output=/dev/null")
    lab.wait_for_job(job, "COMPLETED")
    (table,) = elsewhere.sql("SHOW TABLES FROM slurm_acct_db LIKE '%job\\_table';").split()
    jobs = elsewhere.sql(f"SELECT id_job FROM slurm_acct_db.`{table}`;")  # noqa: S608 (a table of our own)
    assert jobs.split() == [str(job)]
    lab.root("ctl1", "! dpkg --status mariadb-server && ! pgrep mariadbd")
    assert set(lab.changed(lab.deploy()).values()) == {0}
    elsewhere.sql("SET GLOBAL innodb_snapshot_isolation = ON;")
    again = lab.deploy("--full")
    assert set(lab.changed(again).values()) == {0}
    assert "innodb_snapshot_isolation=ON" in json.dumps(again["warnings"])
    elsewhere.sql("SET GLOBAL innodb_snapshot_isolation = OFF;")
    assert database_check(elsewhere)["status"] == "pass"
    assert lab.parsed("status", "--json")["ok"]


def test_backups_have_the_rows_of_the_server_and_come_back_where_it_lost_them(elsewhere: Elsewhere) -> None:
    lab = elsewhere.lab
    lab.deepopsctl("backup", "run")
    verified = json.loads(lab.deepopsctl("backup", "verify", "--json").stdout)["nodes"][0]
    assert sum(verified["rows"].values()) > 0
    history = lab.root("ctl1", "sacct -aXP -o jobid,jobname,submit,account,user,state")
    refused = lab.deepopsctl("restore", "--only", "accounting", "--yes", ok=False)
    assert "is not empty: nothing was changed" in refused.stderr
    lab.root("ctl1", "systemctl stop slurmctld slurmdbd")
    elsewhere.sql("DROP DATABASE slurm_acct_db;")

    lab.deepopsctl("restore", "--only", "accounting", "--yes")

    assert lab.root("ctl1", "sacct -aXP -o jobid,jobname,submit,account,user,state") == history
    assert set(lab.changed(lab.deploy()).values()) == {0}


def test_tls_is_verified_with_the_certificate_of_the_site(elsewhere: Elsewhere) -> None:
    lab = elsewhere.lab
    certificate = lab.root(SERVER, f"set -- {elsewhere.address}; {CERTIFY}")
    lab.root("ctl1", f"cat > {CA} <<'END'\n{certificate}\nEND\n")
    elsewhere.set(slurm_dbd_server_ca=CA)
    user = elsewhere.sql("SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user WHERE user = 'slurm';")
    elsewhere.sql(f"ALTER USER {user} REQUIRE SSL;")

    assert lab.deploy()["ok"]

    job = lab.submit("true", "--chdir=/tmp", "--output=/dev/null")
    lab.wait_for_job(job, "COMPLETED")
    # another authority's is refused, and slurmdbd keeps what works
    other = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout /dev/null -out {CA} 2>/dev/null"
    lab.root("ctl1", f"cp {CA} /root/ca.pem; {other}")
    (failure,) = lab.deploy("--full", ok=False)["failures"]
    assert "refuses slurm" in failure["message"]
    assert "certificate" in failure["message"].lower()
    lab.root("ctl1", f"mv /root/ca.pem {CA}")


def test_a_new_password_is_the_sites_to_set(elsewhere: Elsewhere) -> None:
    lab = elsewhere.lab
    refused = lab.deepopsctl("secrets", "rotate", "--yes", ok=False)
    assert refused.returncode == 3
    assert "ALTER USER 'slurm'@'HOST' IDENTIFIED BY 'NEW'" in refused.stderr
    user = elsewhere.sql("SELECT CONCAT(QUOTE(user), '@', QUOTE(host)) FROM mysql.user WHERE user = 'slurm';")
    elsewhere.sql(f"ALTER USER {user} IDENTIFIED BY 'another-0815';")
    directory = ClusterDir(lab.directory)
    secrets.change(directory.secrets, directory.vault_password, {"slurm_dbd_password": "another-0815"})

    assert json.loads(elsewhere.leaks.run("deploy", "--diff", "--json").stdout)["ok"]

    job = lab.submit("true", "--chdir=/tmp", "--output=/dev/null")
    lab.wait_for_job(job, "COMPLETED")
    assert elsewhere.leaks.seen == []
    with_password = {
        path: mode for path, mode in elsewhere.leaks.on_node("ctl1").items() if "slurm" in path or "database" in path
    }
    assert with_password == {"/etc/slurm/slurmdbd.conf": "600", "/etc/deepopsctl/database.cnf": "600"}


def test_a_server_that_is_gone_is_named(elsewhere: Elsewhere) -> None:
    elsewhere.lab.root(SERVER, "systemctl stop mariadb")

    check = database_check(elsewhere)

    assert (check["status"], elsewhere.address in check["message"]) == ("fail", True)
    (failure,) = elsewhere.lab.deploy("--full", ok=False)["failures"]
    assert f"{elsewhere.address} port 3306 does not answer: Connection refused" in failure["message"]
