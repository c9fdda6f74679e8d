"""The Ansible call: arguments, environment, and the files that they name.

Several playbooks run as one (docs/develop/decisions/one-ansible-run.md). Events name the combined playbook; a play
without hosts marks where each of the original playbooks begins.
"""

from __future__ import annotations

import configparser
import json
import os
import shlex
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import dropwhile, takewhile
from pathlib import Path, PurePath
from types import MappingProxyType

import yaml

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.inventory import GROUPS
from deepopsctl.cluster.settings import renamed_variables
from deepopsctl.cluster.ssh_login import ALONE, CONFINED, Login
from deepopsctl.content import COLLECTION
from deepopsctl.errors import ControlMachineError
from deepopsctl.files import user_cache, write_atomic
from deepopsctl.model.cluster import Cluster
from deepopsctl.run.workspace import DEFAULT_KEEP_RUNS
from deepopsctl.text.answers import Fields

# A Variables file of the user's (`-e @FILE`), or values (`-e KEY=VALUE`); later ones win, as in Ansible.
Variables = Mapping[str, object] | Path

# Ansible's own value of `collections_path`: a site's collections are there.
USUAL_COLLECTIONS = "~/.ansible/collections:/usr/share/ansible/collections"

# Seconds that sudo may take on a node after login: Ansible's own 12 s are too few for a node whose processors
# are all busy. Whether a node is up at all is known sooner, by ConnectTimeout: ssh takes
# the first one it is given, and Ansible adds this number as a second one.
PATIENCE_S = 60
# Connections are kept for the next task and the next run.
USUAL_SSH: Mapping[str, str] = MappingProxyType({
    "ControlMaster": "auto",
    "ControlPersist": "30m",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "15",
})  # fmt: skip
# For queries of nodes that may hang: an open connection to one would block the query for a minute.
IMPATIENT_SSH: Mapping[str, str] = MappingProxyType({
    "ControlMaster": "no",
    "ControlPath": "none",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "4",
    "ServerAliveCountMax": "3",
})  # fmt: skip

# An open connection is a process with 1.5 MiB of its own here, for half an hour. A run of more nodes keeps none: 5,000
# would take 7 GiB, and Ansible comes back to a node only when it has been at all others.
MOST_KEPT = 400

_JOINED = "together"
# nodes in parallel, and what Ansible needs for one: 25 MB were measured with 100 nodes
_FEWEST, _MOST, _FORK_KIB = 25, 100, 50 * 1024
_NAME = "Begin: "
# of a play
_PARTS = ("pre_tasks", "roles", "tasks", "post_tasks")
# an empty group; summaries omit Ansible's warning about it
EMPTY_GROUP = "deepops_nobody"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One call of Ansible.

    `playbook` and `more` name files under playbooks/, without `.yml`. `component` is the name in reports; if
    empty, each playbook's own name. `inventory` is the text of hosts.yml if the directory's own must not change.
    `limit` is Ansible's; passwords leave this process only through the terminal that Ansible asks on.
    """

    directory: ClusterDir
    playbook: str
    component: str = ""
    extra_vars: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    limit: str = ""
    tags: str = ""
    check: bool = False
    diff: bool = False
    verbosity: int = 0
    timeout: float = 0
    user: str = ""
    forks: int = 0
    full: bool = False
    ssh_password: str | None = field(default=None, repr=False)
    become_password: str | None = field(default=None, repr=False)
    command: str = "deploy"
    keep_runs: int = DEFAULT_KEEP_RUNS
    more: tuple[str, ...] = ()
    user_vars: tuple[Variables, ...] = ()
    content: Path | None = None
    ssh: Mapping[str, str] = field(default_factory=lambda: USUAL_SSH)
    inventory: str = ""
    patience_s: int = PATIENCE_S
    # whether Ansible checks one of several nodes that are the same (node_classes.py)
    by_class: bool = False
    # options of the claim: `break_lock`, `replace_newer`, `dead` holders
    claim: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def for_nodes(self, cluster: Cluster) -> RunRequest:
        """The request with the connections that its number of nodes allows; a group may be all of them."""
        every, limit = {node.name for node in cluster.nodes}, set(filter(None, self.limit.split(",")))
        count = len(limit) if limit and limit <= every else len(every)
        kept = {key: value for key, value in self.ssh.items() if key != "ControlPersist"}
        return replace(self, ssh={**kept, **ALONE}) if count > MOST_KEPT else self

    @property
    def playbooks(self) -> tuple[str, ...]:
        """All playbooks, in order."""
        return (self.playbook, *self.more)

    @property
    def login(self) -> Login:
        """How the person logs in, for what is asked without Ansible."""
        return Login(self.user, self.ssh_password, self.become_password)

    @property
    def components(self) -> tuple[str, ...]:
        """The components that are deployed directly one after the other."""
        first = dropwhile(lambda name: "/" in name, self.playbooks)
        return tuple(takewhile(lambda name: "/" not in name, first))

    @property
    def together(self) -> tuple[str, ...]:
        """The playbooks that continue on other nodes after one node failed; in a check, all of them."""
        return self.playbooks if self.check else self.components

    @property
    def deploys(self) -> bool:
        """Whether components are deployed, by any command: their playbooks are in no subdirectory."""
        return bool(self.components)


def arguments(request: RunRequest, playbooks: tuple[Path, ...], private: Path) -> list[str]:
    """The arguments of ansible-playbook; variables and limit are in files: no secret is ever on a command line."""
    hosts = private / "cluster" / "inventory" / "hosts.yml" if request.inventory else request.directory.hosts
    renamed = private / "renamed" / "hosts.yml"
    between = ["-i", str(renamed)] if renamed.exists() else []
    argv = ["-i", str(private / "inventory" / "hosts.yml"), *between, "-i", str(hosts)]
    if request.limit:
        # a file in Ansible's working directory: it splits this argument at blanks
        argv += ["--limit", "@limit"]
    for index, variables in enumerate(request.user_vars):
        path = variables if isinstance(variables, Path) else private / f"vars-{index}.json"
        argv += ["-e", f"@{path}"]
    argv += ["-e", f"@{private / 'vars.json'}", "--forks", str(request.forks or default_forks())]
    argv += ["--tags", request.tags] if request.tags else []
    for wanted, option in (
        (request.check, "--check"),
        (request.diff, "--diff"),
        (request.ssh_password is not None, "--ask-pass"),
        (request.become_password is not None, "--ask-become-pass"),
        (request.verbosity > 0, f"-{'v' * request.verbosity}"),
    ):
        argv += [option] if wanted else []
    return argv + [str(path) for path in playbooks]


def write_inputs(request: RunRequest, variables: Mapping[str, object], content: Path, private: Path) -> None:
    """Write the files that the arguments name, readable by their owner only, into a new directory."""
    inventory = private / "inventory"
    inventory.mkdir(parents=True, mode=0o700)
    # The product's variables come first and lose; Ansible finds group_vars only next to an inventory file.
    (inventory / "group_vars").symlink_to(content / "group_vars")
    collection = private / "collections" / COLLECTION
    collection.parent.mkdir(parents=True, mode=0o700)
    collection.symlink_to(content)
    groups: dict[str, object] = {group: {} for group in GROUPS}
    stub = {"all": {"children": {"slurm_cluster": {"children": groups}}}}
    write_atomic(inventory / "hosts.yml", json.dumps(stub), mode=0o600)
    if request.inventory:
        _write_inventory(request, private / "cluster")
    if renamed := renamed_variables(request.directory):
        _write_renamed(renamed, private / "renamed")
    write_atomic(private / "vars.json", json.dumps(dict(variables)), mode=0o600)
    for index, mine in enumerate(request.user_vars):
        if not isinstance(mine, Path):
            write_atomic(private / f"vars-{index}.json", json.dumps(dict(mine)), mode=0o600)
    write_limit(request, private)
    # Without it Ansible would read the user's and the system's. By default it looks for results a thousand times a
    # second, which is a good part of a processor where many nodes work.
    write_atomic(private / "ansible.cfg", "[defaults]\ninternal_poll_interval = 0.005\n", mode=0o600)
    (private / "tmp").mkdir(mode=0o700)


def write_limit(request: RunRequest, private: Path) -> None:
    """Write the file that names the nodes of the run, if these are not all."""
    if request.limit:
        write_atomic(private / "limit", request.limit.replace(",", "\n") + "\n", mode=0o600)


def environment(
    directory: ClusterDir,
    content: Path,
    private: Path,
    inherited: Mapping[str, str],
    ssh: Mapping[str, str] = USUAL_SSH,
    patience_s: int = PATIENCE_S,
) -> dict[str, str]:
    """What this run adds to the environment; ansible.cfg for everyone else is in the repository's root."""
    own_settings = directory.path / "ansible.cfg"
    variables = {
        "ANSIBLE_CONFIG": str(own_settings if own_settings.is_file() else private / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": _collections(own_settings, private, inherited),
        # a collection's own callbacks are only called where a setting names them, which would hide a site's
        "ANSIBLE_CALLBACK_PLUGINS": str(content / "plugins" / "callback"),
        "ANSIBLE_ROLES_PATH": str(content / "roles"),
        "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
        "ANSIBLE_INVENTORY_ENABLED": "yaml",
        "ANSIBLE_PIPELINING": "True",
        # runner turns the check off where this is not set
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_SSH_ARGS": ssh_arguments(directory.known_hosts, ssh),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(control_dir(directory.path, inherited)),
        # packed modules, for the next run (plugins/callback/warm_up.py)
        "DEEPOPSCTL_MODULE_CACHE": str(user_cache(inherited, "modules")),
        # saves one round trip per node for interpreter discovery
        "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        "ANSIBLE_INJECT_FACT_VARS": "False",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_NOCOWS": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "False",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        # runner's callback silently drops larger results: a report on a thousand nodes would be lost
        "MAX_EVENT_RES": "50000000",
        # other batch systems set it, and that callback expects AWX's number in it
        "JOB_ID": "",
        # Ansible refuses to start under a locale that this machine lacks
        "LC_ALL": "C.UTF-8",
    }
    if "ANSIBLE_TIMEOUT" not in inherited and not _options(own_settings, "timeout"):
        variables["ANSIBLE_TIMEOUT"] = str(patience_s)
    if "ANSIBLE_VAULT_PASSWORD_FILE" not in inherited and directory.vault_password.is_file():
        variables["ANSIBLE_VAULT_PASSWORD_FILE"] = str(directory.vault_password)
    return variables


def ssh_arguments(known_hosts: Path, ssh: Mapping[str, str] = USUAL_SSH) -> str:
    """Options of every ssh call: pinned host keys, and the connection options of the run."""
    # ssh splits this value at blanks and expands `%`; Ansible splits the whole string like a shell
    hosts = '"' + str(known_hosts).replace("%", "%%") + '"'
    options = {"UserKnownHostsFile": hosts, **CONFINED, "StrictHostKeyChecking": "yes", **ssh}
    return shlex.join(part for key, value in options.items() for part in ("-o", f"{key}={value}"))


def control_dir(cluster: Path, inherited: Mapping[str, str]) -> Path:
    """A private directory for ssh's sockets, one per cluster: their paths may have a hundred characters at most."""
    suffix = sha256(str(cluster).encode()).hexdigest()[:8]
    base = Path(inherited.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    if not base.is_dir() or len(str(base)) > 40:
        base = Path("/tmp")  # noqa: S108 (the directory below is checked: own and private)
    path = base / f"deepopsctl-{os.getuid()}-{suffix}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise ControlMachineError(f"{path} is not a private directory of yours", "another user created it: remove it")
    return path


def default_forks() -> int:
    """Number of nodes that Ansible works on in parallel: as many as there is memory for, 25 to 100.

    A node that installs packages needs this machine for one second in thirty, so the number of cores sets no limit.
    """
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        available_kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        return max(_FEWEST, min(available_kib // _FORK_KIB, _MOST))
    return _FEWEST


def default_width() -> int:
    """Number of nodes that are asked in parallel: each ssh needs a core for some milliseconds."""
    return max(_FEWEST, min(4 * (os.cpu_count() or 1), _MOST))


def join(playbooks: Sequence[Path], together: Sequence[Path], directory: Path) -> tuple[Path, ...]:
    """The playbooks to run; those of `together` are replaced by one combined playbook in `directory`."""
    if len(together) < 2:
        return tuple(playbooks)
    path = directory / f"{_JOINED}.yml"
    _write(together, path)
    first = list(playbooks).index(together[0])
    return (*playbooks[:first], path, *playbooks[first + len(together) :])


def parts_of_plays(playbooks: Iterable[Path]) -> Iterator[int]:
    """How many roles and tasks each play lists; those that `join` adds, which only mark a beginning, are none."""
    for path in playbooks:
        try:
            root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        except yaml.YAMLError:
            # Ansible says where
            return
        for play in root.value if isinstance(root, yaml.SequenceNode) else ():
            parts = {key.value.rpartition(".")[2]: value for key, value in play.value}
            if "import_playbook" in parts:
                yield from parts_of_plays([path.parent / parts["import_playbook"].value])
            elif "name" not in parts or not str(parts["name"].value).startswith(_NAME):
                yield sum(len(parts[name].value) for name in _PARTS if name in parts)


class PlaybookTracker:
    """Tracks which of the original playbooks the events of a run belong to."""

    def __init__(self) -> None:
        self._now = ""

    def update(self, raw: Mapping[str, object]) -> bool:
        """Process an event; True if it only marks the beginning of a playbook."""
        play = Fields(raw).part("event_data").text("play")
        if raw.get("event") == "playbook_on_play_start" and play.startswith(_NAME):
            self._now = play.removeprefix(_NAME)
        return play.startswith(_NAME)

    def playbook_of(self, raw: Mapping[str, object]) -> str:
        """The name of the original playbook of an event."""
        stem = PurePath(Fields(raw).part("event_data").text("playbook")).stem
        return self._now if stem == _JOINED else stem


def _write_inventory(request: RunRequest, directory: Path) -> None:
    """A copy of the cluster directory for this run: its own inventory, and links to all other files."""
    own = request.directory
    inventory = directory / "inventory"
    inventory.mkdir(parents=True, mode=0o700)
    write_atomic(inventory / "hosts.yml", request.inventory, mode=0o600)
    for source, target, excluded in (
        (own.path, directory, own.inventory_dir),
        (own.inventory_dir, inventory, own.hosts),
    ):
        for path in source.iterdir():
            if path not in (excluded, own.runs):
                (target / path.name).symlink_to(path)


def _write_renamed(files: Mapping[Path, Mapping[str, str]], directory: Path) -> None:
    """Write the new names of settings that a site has under their old ones: the site's own inventory comes later."""
    for path, variables in {Path("hosts.yml"): {"all": {}}, **files}.items():
        (directory / path).parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        write_atomic(directory / path, json.dumps(variables), mode=0o600)


def _collections(settings: Path, private: Path, inherited: Mapping[str, str]) -> str:
    """Directories with collections: this run's link to the content, then those of the site."""
    own = [
        str(settings.parent / Path(path).expanduser())
        for text in _options(settings, "collections_path")
        for path in text.split(":")
    ]
    site = inherited.get("ANSIBLE_COLLECTIONS_PATH") or ":".join(own) or USUAL_COLLECTIONS
    return f"{private / 'collections'}:{site}"


def _options(settings: Path, option: str) -> list[str]:
    """The values of an option in the cluster's own ansible.cfg."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    # for a file that can't be read Ansible prints the error
    with suppress(configparser.Error, UnicodeDecodeError):
        parser.read(settings, encoding="utf-8")
    return [parser[name][option] for name in ("defaults", "ssh_connection") if parser.has_option(name, option)]


def _write(playbooks: Sequence[Path], path: Path) -> None:
    plays: list[dict[str, object]] = []
    for playbook in playbooks:
        plays.append({"name": f"{_NAME}{playbook.stem}", "hosts": EMPTY_GROUP, "gather_facts": False})
        plays.append({"name": playbook.stem, "ansible.builtin.import_playbook": str(playbook)})
    write_atomic(path, json.dumps(plays), mode=0o600)
