"""The scripts that run on nodes: plain POSIX sh, one login each, and how their reports are read.

A script travels on stdin, because the user's login shell may be any (csh, fish) and would read it as its own
language. What follows the script on stdin is its data, line by line; `sudo -S` reads its own line from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepopsctl.cluster.ssh_login import CHEAP, options
from deepopsctl.node_programs._shared import access_keys

# of report lines, among what a login prints
MARK = "@deepopsctl "

_COMMON = r"""
LC_ALL=C; export LC_ALL; umask 077
say() { printf '@deepopsctl %s\n' "$*"; }
stop() { say "error $*"; exit 3; }
cd "${HOME:-/nonexistent}" 2>/dev/null || stop "the home directory ${HOME:-} is missing"
"""

# data: size of the program for root and itself, name and comment of a key pair to make here, number of keys, keys,
# `given`, sudo password
_WORK = (
    _COMMON
    + r"""
mode() {
  [ "$(stat -c %a "$2")" = "$1" ] && return
  chmod "$1" "$2" 2>/dev/null || stop "can't set the mode of $HOME/$2: it belongs to $(stat -c %U "$2")"
  say "changed mode"
}
no_write() {
  stop "can't write $HOME/$file: its directory is $(stat -c %U .ssh)'s, $(df -Pk . | awk 'NR > 1 {print $4}') KiB free"
}
# home directories may be shared: all nodes then write to the same file, at the same time
lock=.ssh/deepopsctl.lock
unlock() { trap - EXIT; rmdir "$lock" 2>/dev/null; }
authorized() { grep -v '^[[:space:]]*#' "$file" | grep -qF -- "$blob"; }
# a line with this key, which may be used from elsewhere than the wanted one says; others' options are left alone
lines='!/^[ \t]*#/ && ($2 == blob || $3 == blob && $1 ~ /^from="[^" ]*"$/)'
outdated() {
  case $1 in from=*) ;; *) return 1 ;; esac
  awk -v want="$1" -v blob="$blob" "$lines && \$0 != want { found = 1 } END { exit !found }" "$file"
}
authorize() {
  blob=${1#from=* }; blob=${blob#* }; blob=${blob%% *}
  # a lock older than 4 s was left by a killed run: no run needs it that long
  for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    outdated "$1" || ! authorized || return
    ! mkdir "$lock" 2>/dev/null || break
    [ -w .ssh ] || break
    sleep 0.2
  done
  trap unlock EXIT
  if outdated "$1"; then renew "$1"; else authorized || append "$1"; fi
  unlock
}
renew() {
  awk -v want="$1" -v blob="$blob" "$lines { if (!done) print want; done = 1; next } { print }" "$file" >"$file.new" ||
    no_write
  # a symbolic link stays one
  if [ -L "$file" ]; then cat "$file.new" >"$file" && rm -f "$file.new"; else mv -f "$file.new" "$file"; fi || no_write
  say "changed key"
}
# those that other nodes may see, whichever way they are reached; bridges of containers come and go
addresses() {
  ip -o address show scope global 2>/dev/null |
    awk '$2 !~ /^(docker|podman|virbr|veth|br-|cni|lxc|flannel|cali)/ && !/ temporary/ { sub("/.*", "", $4); print $4 }'
  set -- ${SSH_CONNECTION:-}
  printf '%s\n' 127.0.0.1 ::1 ${3:+"${3%%\%*}"}
}
append() {
  { [ -z "$(tail -c 1 "$file")" ] || echo; printf '%s\n' "$1"; } >>"$file" || no_write
  say "changed key"
}
size=
IFS= read -r size; access=$(head -c "$size"); IFS= read -r own; IFS= read -r comment; IFS= read -r count
keys=
while [ "$count" -gt 0 ]; do IFS= read -r key; keys="$keys$key
"; count=$((count - 1)); done
verdict= password=
if [ "$(id -u)" = 0 ]; then
  rights=root
elif ! command -v sudo >/dev/null; then
  rights="none sudo is not installed"
elif why=$(sudo -k -n true 2>&1 </dev/null); then
  rights=passwordless
else
  # Ansible can't give sudo-rs a password; the classic sudo is sudo.ws next to it
  sudo=$(command -v sudo.ws || echo sudo)
  case $why in
    *"authentication is required"*)
      if [ "$sudo" = sudo ]; then rights="none sudo-rs asks for a password"; else rights=password; fi ;;
    *"password is required"*) rights=password ;;
    *) rights="none $(printf '%s' "$why" | tail -n 1)" ;;
  esac
  IFS= read -r given
  if [ "$given" = given ]; then
    IFS= read -r password
    verdict=refused; ! printf '%s\n' "$password" | "$sudo" -k -S -p '' true 2>/dev/null || verdict=accepted
  fi
fi
# root's own file of keys: who can write the home must not be able to add one. Root's home is root's anyway.
reported= place=home
own_in_roots_directory() {
  [ -n "$own" ] && [ -r "/etc/ssh/deepopsctl/login/$own.pub" ] || return
  public="from=\"$(addresses | sort -u | paste -s -d , -)\" $(cat "/etc/ssh/deepopsctl/login/$own.pub")"
  say "public $public"
  say "identity /etc/ssh/deepopsctl/login/$own"
}
# whether there is nothing for root to do; without a right to ask it, more is not known
held() {
  file=/etc/ssh/deepopsctl/access/$(id -un)
  [ -r "$file" ] || return
  printf '%s' "$keys" | while IFS= read -r key; do
    blob=${key#from=* }; blob=${blob#* }; blob=${blob%% *}
    authorized || exit 1
  done || return
  [ -z "$own" ] || own_in_roots_directory
}
in_roots_file() {
  command -v python3 >/dev/null || { say "kept python3 is not installed"; return 1; }
  from=$(addresses | sort -u | paste -s -d , -)
  set -- env DEEPOPSCTL_ADDRESSES="$from" python3 -I -c "$access" "$(id -un)" "$own" "$comment"
  if [ "$rights" = passwordless ]; then
    reported=$(printf '%s' "$keys" | sudo -n "$@" 2>&1)
  else
    reported=$({ printf '%s\n' "$password"; printf '%s' "$keys"; } | "$sudo" -k -S -p '' "$@" 2>&1)
  fi
  case $reported in
    *"@deepopsctl installed root"*) place=root ;;
    *"@deepopsctl kept"*) ;;
    *) say "kept $(printf '%s' "$reported" | tail -n 1)" ;;
  esac
  printf '%s\n' "$reported"
  [ "$place" = root ]
}
in_home() {
  [ -d .ssh ] || mkdir -p .ssh || stop "can't make $HOME/.ssh"
  mode 700 .ssh
  file=.ssh/authorized_keys
  [ -e "$file" ] || true >>"$file" || no_write
  mode 600 "$file"
  if own_in_roots_directory; then
    authorize "$public"
  elif [ -n "$own" ]; then
    if [ ! -s ".ssh/$own" ]; then
      rm -f ".ssh/$own" ".ssh/$own.pub"
      if ! why=$(ssh-keygen -q -t ed25519 -N '' -C "$comment" -f ".ssh/$own" 2>&1 </dev/null); then
        stop "can't make a key for $(id -un) here: $why"
      fi
      say "changed controller-key"
    fi
    if [ ! -s ".ssh/$own.pub" ]; then
      ssh-keygen -y -P '' -f ".ssh/$own" >".ssh/$own.pub" </dev/null || stop "can't read $HOME/.ssh/$own"
    fi
    # a user who gets hold of this key can use it from here alone
    public="from=\"$(addresses | sort -u | paste -s -d , -)\" $(cat ".ssh/$own.pub")"
    authorize "$public"
    say "public $public"
    say "identity ~/.ssh/$own"
  fi
  while IFS= read -r key; do
    [ -z "$key" ] || authorize "$key"
  done <<KEYS
$keys
KEYS
}
case $rights-$verdict in
  passwordless-* | password-accepted) in_roots_file || in_home ;;
  root-*) in_home ;;
  *) held || { say "kept only root may move them, and sudo asks for a password"; in_home; } ;;
esac
[ ! -d .ssh ] || ! command -v restorecon >/dev/null || restorecon -R .ssh 2>/dev/null
say "host $(uname -n)"
say "home $(stat -c %a .)"
command -v python3 >/dev/null || say "python missing"
case $rights in root) say "sudo passwordless" ;; *) say "sudo $rights" ;; esac
[ -z "$verdict" ] || say "sudo-password $verdict"
"""
)

# data: the base name of the files, their sizes, the two files, then one `NAME` a line to try
_CONTROLLER = (
    _COMMON
    + r"""
take() {
  text=$(head -c "$2")
  # not by way of a second file: a run that changes nothing leaves even the directory's time alone
  [ "$(cat "$1" 2>/dev/null)" != "$text" ] || return
  { printf '%s\n' "$text" >"$1.new" && mv -f "$1.new" "$1"; } || stop "can't write $HOME/$1: is the disk full?"
  say "changed controller"
}
IFS= read -r base; IFS= read -r config; IFS= read -r hosts
[ -d .ssh ] || mkdir -m 700 .ssh || stop "can't make $HOME/.ssh"
take ".ssh/$base.known_hosts" "$hosts"
take ".ssh/$base.config" "$config"
[ -e .ssh/config ] || true >.ssh/config || stop "can't write $HOME/.ssh/config"
if ! grep -qiE "^[[:space:]]*Include[[:space:]]+$base\.config[[:space:]]*\$" .ssh/config; then
  { printf 'Include %s.config\n' "$base"; cat .ssh/config; } >.ssh/config.new ||
    stop "can't write $HOME/.ssh/config"
  # a symbolic link (a directory of dot files) stays one
  if [ -L .ssh/config ]; then cat .ssh/config.new >.ssh/config && rm -f .ssh/config.new
  else mv -f .ssh/config.new .ssh/config; fi
  say "changed controller"
fi
command -v ssh >/dev/null || stop "ssh is not installed here: install openssh-client"
# each login tells that it works and nothing else; an older ssh does not know this, and a site may choose for itself
cheap="@cheap@"
exchanges() { ssh -G "$@" any 2>/dev/null | grep '^kexalgorithms '; }
{ exchanges -F none $cheap >/dev/null && [ "$(exchanges)" = "$(exchanges -F none)" ]; } || cheap=
cheap=$cheap xargs -r -n 1 -P 16 sh -c '
  why=$(ssh $cheap -o BatchMode=yes -o ConnectTimeout=10 -o ConnectionAttempts=2 "$1" true 2>&1 </dev/null) || {
    printf "@deepopsctl missed %s %s\n" "$1" "$(printf "%s" "$why" | tail -n 1 | cut -c 1-200)"
    exit
  }
  printf "@deepopsctl reached %s\n" "$1"
' reach
"""
)


@dataclass(frozen=True, slots=True)
class Report:
    """The report lines of a script, without other output of the login: (word, rest of the line) pairs."""

    lines: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, output: str) -> Report:
        """Pick the report's lines."""
        marked = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
        return cls(tuple((word, rest) for word, _, rest in (line.partition(" ") for line in marked)))

    def all(self, word: str) -> tuple[str, ...]:
        """All values of one word, in order."""
        return tuple(rest for key, rest in self.lines if key == word)

    def without(self, *words: str) -> Report:
        """The report without these words."""
        return Report(tuple(line for line in self.lines if line[0] not in words))

    def last(self, word: str) -> str:
        """The last value of a word; '' without one."""
        return (*("",), *self.all(word))[-1]


@dataclass(frozen=True, slots=True)
class Script:
    """A command line for ssh, its stdin, and its timeout (sudo or a directory service may be slow)."""

    command: str
    data: str = ""
    seconds: int = 60


NOTHING = Script("true")


def work_script(keys: list[str], own_key: str = "", comment: str = "", sudo_password: str | None = None) -> Script:
    """Authorise keys, correct modes, report on sudo; `own_key` names a key pair to make on the node."""
    sudo = ["given", sudo_password] if sudo_password is not None else [""]
    program = Path(access_keys.__file__).read_text(encoding="utf-8").strip()
    data = [f"{len(program.encode())}\n{program}{own_key}", comment, str(len(keys)), *keys, *sudo, ""]
    return _script(_WORK, "\n".join(data))


def controller_script(base: str, config: str, known_hosts: str, names: list[str]) -> Script:
    """Install the client configuration on the controller and test the login to each name from there."""
    head = f"{base}\n{len(config.encode())}\n{len(known_hosts.encode())}\n"
    data = head + known_hosts + config + "".join(f"{name}\n" for name in names)
    # 16 logins at a time, 20 s for each that does not answer
    script = _CONTROLLER.replace("@cheap@", " ".join(options(CHEAP)))
    return _script(script, data, 60 + 2 * len(names))


def _script(text: str, data: str, seconds: int = 60) -> Script:
    body = text.strip() + "\n"
    return Script(f"exec /bin/sh -c 'eval \"$(head -c {len(body.encode())})\"'", body + data, seconds)
