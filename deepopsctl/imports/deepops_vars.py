"""DeepOps's variables by name: what deepopsctl carries over, also as `storage`, and reasons for all others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from deepopsctl.cluster.builder import Draft
from deepopsctl.cluster.import_report import Carryover
from deepopsctl.errors import InputError, Problem
from deepopsctl.imports.ansible_inventory import Opaque, Setting, as_text
from deepopsctl.storage.builder import StorageDraft
from deepopsctl.storage.nfs import VERSIONS
from deepopsctl.storage.spec import StorageReader
from deepopsctl.text import values
from deepopsctl.text.answers import mappings
from deepopsctl.text.node_sets import fold_in_order, shorten
from deepopsctl.text.problems import Problems, RefusedError
from deepopsctl.text.sections import SectionReader
from deepopsctl.text.yaml_reader import Document

# Published with DeepOps, so not secret.
PLACEHOLDERS = frozenset({
    "replacewithasecurepasswordinthevault", "alsoreplacewithasecurepasswordinthevault", "deepops", "changeme",
})  # fmt: skip
SLURM_PASSWORDS = ("slurm_password", "slurm_db_password")
# Read by the module `deepops`.
READ_ELSEWHERE = frozenset({
    "slurm_cluster_name", "slurm_max_job_timelimit", "slurm_default_job_timelimit", "slurm_oversubscribe",
    "slurm_enable_ha", "slurm_ha_state_save_location", "nfs_server_group", "slurm_monitoring_group",
    "nfs_mounts", "nfs_exports", "nfs_client_group",
    "ansible_host", "ansible_ssh_host", "ansible_port", "ansible_ssh_port", "ansible_user", "ansible_ssh_user",
    "ansible_ssh_private_key_file", "ansible_ssh_common_args", "ansible_ssh_extra_args",
})  # fmt: skip

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
# What deepopsctl does anyway, with the matching values: nothing is lost.
_SAME = MappingProxyType({
    "chrony_install": _TRUE, "slurm_configure_etc_hosts": _TRUE, "slurm_manage_gpus": _TRUE,
    "slurm_username": ("slurm",), "slurm_config_dir": ("/etc/slurm",),
    "slurm_conf_symlink": _FALSE, "ansible_python_interpreter": ("/usr/bin/python3",),
    "ansible_become": _TRUE, "ansible_become_user": ("root",), "ansible_become_method": ("sudo",),
    "ansible_connection": ("ssh", "smart", "paramiko"),
})  # fmt: skip

# What DeepOps has and deepopsctl has not, with possible names: a test checks that no role and no setting has one.
NOT_YET = MappingProxyType({
    "Node Health Check": "nhc|health_check",
    "compilers and MPI of one's own": "hpcsdk|openmpi",
})  # fmt: skip


def _not_yet(topic: str) -> str:
    return f"deepopsctl does not have it yet: {topic}" if topic in NOT_YET else ""


_REASONS: tuple[tuple[str, str, str], ...] = (
    (r"ansible_(ssh_pass|password|become_pass(word)?|sudo_pass)", "passwords do not belong in a file",
     "`ssh setup` asks for it once; sudo's is asked for by -K"),
    (r"ansible_connection", "nodes are reached over SSH, including the control machine", ""),
    (r"ansible_.*", "this way to connect is not managed", "set it in inventory/host_vars or group_vars"),
    (r"slurm_version", "Slurm comes as the distribution packages it", ""),
    (r"slurm_(username|user_home|install_prefix|config_dir|sysconf_dir|build.*|force_rebuild|make.*|src_url)",
     "the distribution's package decides it", ""),
    (r"slurm_(conf|cgroup_conf|gres_conf|dbd_conf)_template", "files are rendered from cluster.yml and slurm_config",
     "import that slurm.conf itself: init --from FILE"),
    (r"slurm_conf_symlink|slurmctl_config_dir", "nodes fetch their configuration from slurmctld", ""),
    (r"slurm_(manage_gpus|autodetect_nvml)", "GPUs are declared in cluster.yml", "--gpus TYPE:COUNT"),
    (r"slurm_(restrict_node_access|enable_pam.*|allow_ssh_user|login_on_compute)|pam_.*",
     "who may log in to a compute node has its own settings",
     "slurm_adopt_enabled and login_access_admin_groups in settings.yml; docs/deploy/logins.md"),
    (r"slurm_(enable_prolog_epilog|.*prolog.*|.*epilog.*)|(prolog|epilog)_fileglob",
     "prologs and epilogs are not delivered", "set Prolog and Epilog in slurm_config once they are on the nodes"),
    (r"slurm_(install_nhc|health_check.*)|nhc_.*", _not_yet("Node Health Check"), ""),
    (r"slurm_enable_nfs.*|nfs_.*|autofs_.*|cachefilesd.*", "NFS is what `storage:` in cluster.yml says", ""),
    ((r"slurm_(enable_monitoring|monitoring_group|exporter.*)|(grafana|prometheus|alertmanager|node_exporter)_.*"
     r"|(dcgm|nvidia|slurm).*exporter.*|collectd.*"), "the component monitoring has its own settings",
     "monitoring_enabled and others in settings.yml; docs/deploy/monitoring.md"),
    (r"slurm_cluster_install_nvidia_driver|nvidia_driver_.*", "the component nvidia has its own settings",
     "nvidia_driver_source and nvidia_driver_branch in settings.yml; docs/deploy/gpus.md"),
    (r"slurm_cluster_install_cuda|cuda_.*", "CUDA toolkits are a list of versions",
     "cuda_toolkits in settings.yml; docs/deploy/cuda.md"),
    (r"nvidia_container_.*", "the component nvidia has its own settings",
     "nvidia_container_toolkit in settings.yml; docs/deploy/cuda.md"),
    (r"(install_|nvidia_)?dcgm.*", "the component nvidia has its own settings",
     "nvidia_dcgm in settings.yml; docs/deploy/dcgm.md"),
    (r"mig_.*|nvidia_mig.*", "slices of GPUs (MIG) are part of gpus: in cluster.yml", "docs/deploy/mig.md"),
    (r"mofed.*|gpu_clock.*|allow_user_set_gpu_clocks", "drivers of networks and clocks of GPUs are not managed", ""),
    (r"nvidia_.*", "the component nvidia has its own settings", "docs/deploy/gpus.md"),
    (r"slurm_install_(enroot|pyxis)|slurm_pyxis.*|pyxis.*|enroot_.*",
     "containers of jobs have their own settings",
     "environment_containers: [pyxis] in settings.yml, with `packages build pyxis`; docs/deploy/containers.md"),
    ((r"singularity_.*|slurm_cluster_install_singularity|docker_.*|.*container_registry.*|.*docker_cache|nginx_.*|golang_.*"
      r"|bind_paths|ngc_.*|nvidia_docker.*"),
     "containers of jobs have their own settings",
     "environment_containers and environment_registry_node in settings.yml; docs/deploy/containers.md"),
    (r"slurm_install_lmod|lmod_.*|sm_module.*", "modules have their own settings",
     "`deploy environment`; modules_system and modules_paths in settings.yml"),
    (r"sm_.*|spack_.*|easybuild.*", "EasyBuild and Spack have their own settings",
     "site_software_easybuild and site_software_spack in settings.yml; docs/deploy/software.md"),
    (r"slurm_install_hpcsdk|hpcsdk_.*|openmpi_.*|slurm_cluster_install_openmpi|pmix_.*|hwloc_.*",
     _not_yet("compilers and MPI of one's own"), ""),
    (r"slurm_enable_rsyslog.*|rsyslog_.*", "journals go to the monitoring host by systemd's own programs",
     "monitoring_logs in settings.yml"),
    (r"(deepops_disable_cloud_init|hosts_.*|dns_.*)", "names are put into a block of /etc/hosts of their own", ""),
    (r"chrony_.*|ntp_.*", "time follows the controllers", "set node_common_time_servers in settings.yml"),
    (r"users", "users of the nodes are those of people.yml", "`deepopsctl people import`; docs/deploy/people.md"),
    (r"kerberos_.*|nis_.*|krb5.*", "users of the nodes are those of people.yml, or of a directory service",
     "docs/deploy/directory.md"),
    (r"ssh_.*|move_home.*", "settings of sshd and homes of administrators are not managed", ""),
    (r"(maas|k8s|kube|kubeadm|helm|gpu_operator|calico|etcd|metallb|rook|dashboard)_?.*", "not related to Slurm", ""),
    (r"(https?_proxy|no_proxy|proxy_env)", "a proxy is not set on the nodes", "set it where apt reads it"),
    (r".*_(src|tarball|download)?_?url|.*_repo(_url)?", "nothing is downloaded from there", ""),
    (r"(install_open_ondemand|ood_.*|servername|httpd_.*|r?node_uri)", "Open OnDemand is not managed", ""),
    (r"deepops_.*", "it only concerns DeepOps itself", ""),
    (r"software_.*", "packages besides Slurm's are not managed", ""),
)  # fmt: skip
_COMPILED = tuple((re.compile(pattern), reason, hint) for pattern, reason, hint in _REASONS)


def _slurm_key(key: str) -> Callable[[Setting, Carryover], None]:
    def carry(setting: Setting, carryover: Carryover) -> None:
        text = as_text(setting.value)
        if text:
            carryover.set_slurm(key, values.check_slurm_options({key: text}, {})[key])
            if text.startswith("/"):
                carryover.check(key, setting.where, f"{shorten(text)} must be on the nodes: files are not copied")

    return carry


def _user_id(setting: Setting, carryover: Carryover) -> None:
    text = as_text(setting.value)
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise RefusedError("it is not a user id", "give a number")
    carryover.settings["slurm_user_id"] = int(text)


def _set_hostname(setting: Setting, carryover: Carryover) -> None:
    if as_text(setting.value).lower() in _FALSE:
        carryover.settings["slurm_set_hostname"] = False


def _time_servers(setting: Setting, carryover: Carryover) -> None:
    value = setting.value
    servers = [as_text(item) for item in value] if isinstance(value, list) else as_text(value).split()
    own = [server for server in servers if not re.fullmatch(r"([0-9]\.)?(.*\.)?pool\.ntp\.org", server)]
    if own:
        carryover.settings["node_common_time_servers"] = [values.check_address(server) for server in own]


def _database_user(setting: Setting, carryover: Carryover) -> None:
    text = as_text(setting.value)
    if not re.fullmatch(r"[A-Za-z0-9_]+", text):
        raise RefusedError("it is not a plain name of a database user", "set slurm_dbd_user in settings.yml")
    carryover.settings["slurm_dbd_user"] = text


def _database_password(setting: Setting, carryover: Carryover) -> None:
    text = as_text(setting.value)
    if not re.fullmatch(r"[!-~]{1,200}", text) or re.search(r'[#\\]|^"', text):
        raise RefusedError("slurmdbd.conf can't hold it", "a random one is made")
    carryover.secrets["slurm_dbd_password"] = text


def _munge_seed(setting: Setting, carryover: Carryover) -> None:
    reason = "the munge key is random, not made from a password"
    carryover.leave("slurm_password", setting.where, reason, "`deepopsctl takeover` keeps a running cluster's key")


_HONOURED: MappingProxyType[str, Callable[[Setting, Carryover], None]] = MappingProxyType({
    "slurm_return_to_service": _slurm_key("ReturnToService"),
    "slurm_reboot_program": _slurm_key("RebootProgram"),
    "slurm_resume_timeout": _slurm_key("ResumeTimeout"),
    "slurm_user_uid": _user_id,
    "slurm_db_username": _database_user,
    "slurm_db_password": _database_password,
    "slurm_password": _munge_seed,
    "deepops_set_hostname": _set_hostname,
    "chrony_config_server": _time_servers,
})  # fmt: skip

# The variables read here; other NFS variables get a note.
MOUNTS, EXPORTS, CLIENTS = "nfs_mounts", "nfs_exports", "nfs_client_group"

# `{{ groups['slurm-master'][0] }}`, as in DeepOps's own files
_GROUP = re.compile(r"\{\{\s*groups\[(['\"])([A-Za-z0-9_-]+)\1\]\s*(?:\[0\]|\|\s*first)\s*\}\}")
_VERSION = re.compile(r"(?:nfs)?vers=(.+)")
# set by the systemd units, or the kernel's default
_IMPLIED = frozenset({"defaults", "async", "auto", "nofail", "_netdev", "hard", "proto=tcp", "tcp"})
_SERVED = "only the cluster's own addresses may mount it"


def refused_password(name: str, value: object) -> bool:
    """Whether a Slurm password is DeepOps's published placeholder, so that anybody can derive the key."""
    return name in SLURM_PASSWORDS and as_text(value).lower() in PLACEHOLDERS


def carry_variable(name: str, setting: Setting, carryover: Carryover) -> None:
    """Carry one variable over, or add a note. Values are never quoted: they may be secret."""
    value, where = setting.value, setting.where
    if name in READ_ELSEWHERE or as_text(value).lower() in _SAME.get(name, ()):
        return
    if isinstance(value, Opaque):
        carryover.leave(name, where, "only Ansible can read its value (a vault string or a tag)", "set it manually")
        return
    if is_template(value) and name in (*_HONOURED, *SLURM_PASSWORDS):
        carryover.leave(name, where, "its value is a template", "write the value itself into settings.yml")
        return
    try:
        if name in _HONOURED:
            _HONOURED[name](setting, carryover)
            return
    except RefusedError as refusal:
        carryover.leave(name, where, refusal.message, refusal.hint)
        return
    carryover.leave(name, where, *_why_not(name, value))


def is_on(setting: Setting | None) -> bool:
    """Whether a variable switches something on."""
    return setting is not None and as_text(setting.value).lower() in _TRUE


def is_template(value: object) -> bool:
    """Whether a value contains Jinja."""
    return bool(re.search(r"\{[{%#]", str(value)))


@dataclass(frozen=True, slots=True)
class InventoryHosts:
    """Hosts of the inventory: by pattern, their names in cluster.yml, and the NFS servers."""

    hosts: Callable[[str], Sequence[str]]
    names: Mapping[str, str]
    servers: frozenset[str]


def carry_nfs(settings: Mapping[str, Setting], inventory: InventoryHosts, draft: Draft) -> None:
    """Add the mounts to the draft, with notes on what is not carried over."""
    _Importer(settings, inventory, draft).read()


def _why_not(name: str, value: object) -> tuple[str, str]:
    for pattern, reason, hint in _COMPILED:
        if pattern.fullmatch(name):
            off = as_text(value).lower() in _FALSE and reason.startswith("deepopsctl does not have it yet")
            return (f"{reason}; it is switched off here", "") if off else (reason, hint)
    return "deepopsctl has no such setting", "if your own playbooks read it, put it into inventory/group_vars"


class _Importer:
    def __init__(self, settings: Mapping[str, Setting], inventory: InventoryHosts, draft: Draft) -> None:
        self.settings = settings
        self.inventory = inventory
        self.draft = draft
        self.carryover = draft.carryover
        self.exports = {
            as_text(item["path"]): as_text(item.get("options")) for item in self._entries(EXPORTS) if "path" in item
        }
        self.served: set[str] = set()

    def read(self) -> None:
        """Read all mounts, then note exports that no node mounts."""
        if MOUNTS not in self.settings and CLIENTS in self.settings:
            self.carryover.leave(CLIENTS, self.settings[CLIENTS].where, "what they mount is not specified",
                                 "list it under storage: in cluster.yml")  # fmt: skip
        for item in self._entries(MOUNTS):
            self._mount(item)
        for path in self.exports:
            if path not in self.served:
                self.carryover.leave(f"{EXPORTS}: {shorten(path)}", self.settings[EXPORTS].where,
                                     "no node of the cluster mounts it")  # fmt: skip

    def _entries(self, name: str) -> Iterator[Mapping[str, object]]:
        setting = self.settings.get(name)
        if setting is None:
            return
        good = mappings(setting.value)
        if not isinstance(setting.value, list) or len(good) < len(setting.value):
            self.carryover.leave(name, setting.where, "it is not a list of mappings", "list it under storage:")
        yield from good

    def _mount(self, item: Mapping[str, object]) -> None:
        path, where = as_text(item.get("mountpoint")).rstrip("/"), self.settings[MOUNTS].where
        label = f"{MOUNTS}: {shorten(path)}"
        server = self._server(as_text(item.get("server")))
        if not server:
            self.carryover.leave(label, where, "its server is a template", "name the server under storage:")
            return
        options = [word.strip() for word in as_text(item.get("options")).split(",") if word.strip()]
        source = as_text(item.get("path")) or path
        faults = self._add(self._entry(path, server, source, options), where)
        if faults:
            self.carryover.leave(label, where, faults[0].message, "list it under storage: in cluster.yml")
        else:
            self._check_export(label, where, server, source)

    def _add(self, entry: Mapping[str, object], where: str) -> Sequence[Problem]:
        """Add an entry as if from cluster.yml; returns its problems."""
        source, _, line = where.rpartition(":")
        trial, read = Problems(), StorageDraft()
        document = Document(None, {(): int(line) if line.isdecimal() else 1})
        StorageReader(SectionReader(document, source or where, trial), read).read({"storage": [entry]})
        try:
            trial.raise_if_any()
        except InputError as error:
            return error.problems
        self.draft.storage.entries += read.entries
        return ()

    def _entry(self, path: str, server: str, source: str, words: Sequence[str]) -> dict[str, object]:
        version = next((match[1] for word in words if (match := _VERSION.fullmatch(word))), "")
        options = [word for word in words if word not in _IMPLIED and not _VERSION.fullmatch(word)]
        nfs: dict[str, object] = {}
        if server in self.inventory.names and server not in self.inventory.servers:
            nfs["serve"] = False
        elif server not in self.inventory.names and version in VERSIONS:
            # the cluster's own servers have the newest version
            nfs["version"] = version
        entry: dict[str, object] = {
            "name": re.sub(r"[^a-z0-9_-]+", "-", path.lower()).strip("-"),
            "type": "nfs",
            "source": f"{self.inventory.names.get(server, server)}:{source}",
            "path": path,
            "options": options,
        }
        nodes = self._nodes(server)
        return entry | ({"nodes": nodes} if nodes else {}) | ({"nfs": nfs} if nfs else {})

    def _nodes(self, server: str) -> str:
        """The client nodes; '' if they are all nodes but the server."""
        setting = self.settings.get(CLIENTS)
        hosts = self.inventory.hosts(as_text(setting.value)) if setting else ()
        names = [self.inventory.names[host] for host in hosts if host in self.inventory.names and host != server]
        everybody = {name for host, name in self.inventory.names.items() if host != server}
        return fold_in_order(dict.fromkeys(names)) if names and set(names) != everybody else ""

    def _server(self, text: str) -> str:
        """The host of one of DeepOps's own templates, or the server's name; '' for other templates."""
        group = _GROUP.fullmatch(text)
        if group:
            return next(iter(self.inventory.hosts(group[2])), "")
        return "" if is_template(text) else text

    def _check_export(self, label: str, where: str, server: str, path: str) -> None:
        """Add a note if an export becomes narrower: DeepOps exports to all hosts with no_root_squash."""
        if server not in self.inventory.servers or path not in self.exports:
            return
        self.served.add(path)
        hint = "set squash: none under its nfs: to keep root access from every node"
        if "no_root_squash" in self.exports[path]:
            self.carryover.check(label, where, f"{_SERVED}, and their root user is mapped to the user nobody", hint)
        elif self.exports[path].startswith("*"):
            self.carryover.check(label, where, _SERVED)
