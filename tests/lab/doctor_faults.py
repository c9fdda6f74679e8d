"""What is broken for the doctor's tests: everything that can be broken in a container, all of it at once."""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[str, str]

# waits for what the line before it has started
POLL = "until {}; do sleep 0.1; done"


@dataclass(frozen=True)
class Damage:
    """A (node, damage, repair) step and the checks that must then have these words. Node `net:X`: in X's network."""

    node: str
    damage: str
    repair: str
    expected: dict[Key, str]


def background(unit: str, command: str, ready: str) -> tuple[str, str]:
    """Start something that continues; the damage waits until `ready` succeeds."""
    return f"systemd-run --quiet --unit={unit} {command} && " + POLL.format(ready), f"systemctl stop {unit}"


LOCKER = "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
LOCKER += "open('/run/locked', 'w'); time.sleep(3600)"
CONTROL = r"Package: half\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.com>\nDescription: x\n"
UNPACK = f"""mkdir -p /root/half/DEBIAN && cd /root && printf '{CONTROL}' > half/DEBIAN/control
dpkg-deb --build half half.deb && dpkg --unpack half.deb"""
CGROUP = "d=/sys/fs/cgroup; [ -e $d/cgroup.controllers ] || d=$d/devices; mount -o remount,bind,{} $d"
SUDOERS = "$(grep -l NOPASSWD /etc/sudoers.d/* /etc/sudoers)"

DAMAGES = (
    Damage("gpu01", *background("web", "python3 -m http.server 6818", "ss -Hltn | grep -q :6818"),
           {("ports", "gpu01"): "listens on 6818, slurmd's port"}),
    Damage("gpu01", *background("locker", f'python3 -c "{LOCKER}"', "test -e /run/locked"),
           {("package-lock", "gpu01"): "python3 (pid"}),
    Damage("gpu01", *background("firewalld", "sleep 3600", "systemctl is-active -q firewalld"),
           {("firewall", "gpu01"): "firewalld is active"}),
    Damage("gpu01", "cp /etc/machine-id /root/mid; echo 0123456789abcdef0123456789abcdef > /etc/machine-id",
           "cat /root/mid > /etc/machine-id", {("machine-id", "gpu01"): "gpu[01-02] have the same"}),
    Damage("gpu02", "cp /etc/machine-id /root/mid; echo 0123456789abcdef0123456789abcdef > /etc/machine-id",
           "cat /root/mid > /etc/machine-id", {("machine-id", "gpu02"): "gpu[01-02] have the same"}),
    Damage("gpu01", "cp /etc/os-release /root/osr; mv /usr/lib/os-release /usr/lib/osr; "
           "sed 's/^VERSION_ID=.*/VERSION_ID=\"11\"/' /root/osr > /usr/lib/os-release",
           "mv /usr/lib/osr /usr/lib/os-release", {("os", "gpu01"): "deepopsctl is not tested on Debian 11"}),
    Damage("gpu02", "hostname gpu01", "hostname gpu02", {("hostname", "gpu02"): "its hostname is gpu01"}),
    Damage("gpu02", UNPACK, "dpkg --purge half; rm -rf /root/half*", {("packages-broken", "gpu02"): "with half"}),
    Damage("gpu02", "mount -t tmpfs -o size=20m tmpfs /tmp", "umount /tmp",
           {("disk", "gpu02"): "/tmp has "}),
    Damage("gpu02", CGROUP.format("ro"), CGROUP.format("rw"), {("cgroup", "gpu02"): "a deploy leaves the node out"}),
    Damage("gpu02", "cp /etc/hosts /root/hosts; echo '192.0.2.9 gpu01' >> /etc/hosts", "cat /root/hosts > /etc/hosts",
           {("names", "gpu02"): "gpu01 is 192.0.2.9"}),
    Damage("net:gpu02", "ip link set eth0 mtu 1400", "ip link set eth0 mtu 1500",
           {("mtu", "gpu02"): "eth0 has 1400, others"}),
    Damage("net:gpu01", "ip address add 192.0.2.7/32 dev eth0", "ip address del 192.0.2.7/32 dev eth0",
           {("addresses", "gpu01"): "192.0.2.7 is on gpu[01-02]"}),
    Damage("net:gpu02", "ip address add 192.0.2.7/32 dev eth0", "ip address del 192.0.2.7/32 dev eth0",
           {("addresses", "gpu02"): "192.0.2.7 is on gpu[01-02]"}),
    Damage("gpu01", "useradd -u 1500 carol", "userdel carol",
           {("user-ids", "gpu01"): "carol is 1500:1500 and 1501:1501"}),
    Damage("gpu02", "useradd -u 1501 carol", "userdel carol",
           {("user-ids", "gpu02"): "carol is 1501:1501 and 1500:1500"}),
    Damage("ctl1", "cp $(command -v sleep) /root/slurmctld && systemd-run --quiet --unit=old /root/slurmctld 3600 && "
           + POLL.format("pgrep -x slurmctld"), "systemctl stop old; rm /root/slurmctld",
           {("foreign-slurm", "ctl1"): "slurmctld run"}),
    Damage("ctl1", f"f={SUDOERS} && cp -p $f /root/sudoers && echo $f > /root/which && sed -i 's/NOPASSWD://' $f",
           "cat /root/sudoers > $(cat /root/which)", {("sudo", "ctl1"): "asks for a password"}),
)  # fmt: skip

# (file of the cluster directory, old, new): what is declared and is not so
DECLARED = (
    ("cluster.yml", "count: 2", "count: 4"),
    ("cluster.yml", "roles: [compute]", "roles: [compute], slurm: {RealMemory: 99999999}"),
)
HARDWARE = """schema: 1
nodes:
  - {names: "gpu[01-02]", cpus: 9999, boards: 1, sockets: 1, cores_per_socket: 9999, threads_per_core: 1,
     memory_mb: 1024, cgroup: v2}
"""
DECLARED_EXPECTED: dict[Key, str] = {
    ("gpus", "gpu01"): "no NVIDIA GPU",
    ("memory", "gpu01"): "less memory than cluster.yml",
    ("cpus", "gpu01"): "fewer CPUs",
    ("control-files", "control"): ".vault-password",
}

# the unit tests damage these: a container can't
NOT_HERE = {
    "control-python": "the test runs under a Python that will do",
    "control-packages": "and next to a working Ansible",
    "control-ssh": "it needs ssh itself",
    "control-disk": "the disk of this host must not be filled",
    "control-clock": "containers have this host's clock",
    "clock-offset": "containers have this host's clock",
    "time-service": "containers have this host's clock",
    "kernel": "containers have this host's kernel",
    "repositories": "tests/lab/test_storage_clients.py cuts one off",
    "gpu-driver": "there is no NVIDIA driver",
    "gpu-modules": "a container has its host's kernel",
    "gpu-model": "there is no NVIDIA driver",
    "secure-boot": "containers have no firmware",
    "security": "nothing is installed yet",
    "database": "there is none yet; test_secrets_rotate.py damages that of a deployed cluster",
    "examined": "it would take the minute of the timeout for a node that hangs",
}
