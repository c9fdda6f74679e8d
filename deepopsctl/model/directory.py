"""A directory service that knows users of the cluster (LDAP, Active Directory), as people.yml declares it. Frozen."""

from __future__ import annotations

from dataclasses import dataclass

# ids below are the system's own; a directory without a range of its own gives no others either
LOWEST_ID = 1000


@dataclass(frozen=True, slots=True)
class DirectoryAccount:
    """A Slurm account that follows a group of the directory."""

    group: str
    account: str
    shares: int = 0


@dataclass(frozen=True, slots=True)
class Directory:
    """How nodes ask it, and who of it gets in: by `access_filter` or as a member of `access_groups`."""

    servers: tuple[str, ...]
    base: str
    # its path in the cluster directory, and what is in it
    ca: str
    ca_text: str = ""
    schema: str = "rfc2307"
    bind_dn: str = ""
    # all ids of its users and groups; 0 as the last one: it is not known
    first_id: int = LOWEST_ID
    last_id: int = 0
    access_filter: str = ""
    access_groups: tuple[str, ...] = ()
    ssh_keys: bool = False
    passwords: bool = False
    accounts: tuple[DirectoryAccount, ...] = ()

    @property
    def ids(self) -> range:
        """Its ids, where they are known."""
        return range(self.first_id, self.last_id + 1) if self.last_id else range(0)

    def groups(self) -> tuple[str, ...]:
        """The groups whose members are users of the cluster, each once."""
        return tuple(dict.fromkeys((*(entry.group for entry in self.accounts), *self.access_groups)))

    def variable(self) -> dict[str, object]:
        """The inventory variable `environment_directory`."""
        return {
            "servers": list(self.servers),
            "base": self.base,
            "ca": self.ca_text,
            "schema": self.schema,
            "bind_dn": self.bind_dn,
            "first_id": self.first_id,
            "last_id": self.last_id,
            "access_filter": self.access_filter,
            "access_groups": list(self.access_groups),
            "ssh_keys": self.ssh_keys,
            "passwords": self.passwords,
            "groups": list(self.groups()),
            "accounts": [
                {"group": entry.group, "account": entry.account, **({"shares": entry.shares} if entry.shares else {})}
                for entry in self.accounts
            ],
        }
