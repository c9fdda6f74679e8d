"""Names that no person or group of people.yml, and nothing of a directory service, may have.

Members of some groups get the rights of root, at once or when a package comes later; a user of a daemon's name owns
that daemon's files as soon as its package is installed, which takes the account that is there.
"""

from __future__ import annotations

# of every Debian and Ubuntu: base-passwd, systemd, openssh-server, dbus, cloud images
_SYSTEM = """
root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody nogroup adm tty disk
kmem dialout fax voice cdrom floppy tape audio dip operator src shadow utmp video sasl plugdev staff users input sgx
render kvm netdev crontab ssh sshd messagebus polkitd syslog tss uuidd clock rdma cron _apt
landscape pollinate fwupd-refresh usbmux rtkit tcpdump
"""
# whose members are root, or as good as that
_RIGHTS = """
sudo wheel admin administrator administrators google-sudoers docker podman lxd lxc incus incus-admin libvirt
libvirt-qemu libvirtd qemu microk8s containerd disk shadow adm systemd-journal lpadmin sambashare vboxusers vboxsf
wireshark pcap ssl-cert bluetooth scanner colord
"""
# daemons that roles of deepopsctl install, with what comes with them
_DAEMONS = """
slurm slurmrestd munge mysql mariadb prometheus alertmanager grafana sssd squid proxy chrony ntp ntpd ntpsec
statd rpc rpcuser
nvidia-persistenced nvidia-dcgm nvidia-imex dcgm gluster ceph cvmfs beegfs lustre restic nut oident identd
"""
# daemons that sites add to nodes
_OTHERS = """
postgres postfix postdrop exim dovecot dovenull bind named dnsmasq avahi openldap ldap nslcd redis memcache memcached
nginx apache apache2 http tomcat haproxy keepalived rabbitmq mosquitto zabbix nagios icinga snmp telegraf influxdb
etcd consul vault jenkins gitlab-runner nomad elasticsearch kibana logstash rstudio-server jupyterhub xdmod ganglia
pcp puppet salt ansible hacluster tinyproxy gdm lightdm sddm saned iodine
"""
# Slurm's word for everybody
_SLURM = "all"
RESERVED = frozenset(" ".join((_SYSTEM, _RIGHTS, _DAEMONS, _OTHERS, _SLURM)).split())
# names that distributions give to accounts of packages, and deepopsctl to its own units
PREFIXES = ("_", "systemd-", "deepops")


def is_reserved(name: str) -> bool:
    """Whether it is, or may become, the name of an account that is not a person's."""
    return name.lower() in RESERVED or name.lower().startswith(PREFIXES)


def hidden_names() -> list[str]:
    """Those that SSSD never answers for; it knows no patterns."""
    return sorted(RESERVED - {_SLURM})
