#!/bin/sh
# Build a source package in a clean root of the nodes' release. mmdebstrap runs this in it; /build has what it needs:
#   orig PACKAGING? overlay/ packages version
# and gets result/: the packages, .buildinfo (versions of all build dependencies) and .changes.
set -eu
# mmdebstrap's own: the source's changelog has the time
unset SOURCE_DATE_EPOCH
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
step() { echo "I: building: $*" >&2; }

cd /build
mkdir tree
tar --extract --file orig --strip-components=1 --directory tree --no-same-owner
if [ -e packaging ]; then
    rm -rf tree/debian
    tar --extract --file packaging --directory tree --no-same-owner
fi
cd tree
# a source package without its own directory debian/
[ -e debian/control ] || { echo "E: the source has no debian/control" >&2; exit 1; }
dpkg-source --before-build .
if [ -d /build/overlay ]; then
    [ ! -e /build/overlay/control ] || cat /build/overlay/control >>debian/control
    cp /build/overlay/*.install debian/ 2>/dev/null || true
fi

# the date of the entry before: two builds of the same inputs have the same times
name=$(dpkg-parsechangelog --show-field Source)
date=$(dpkg-parsechangelog --show-field Date)
suite=$(. /etc/os-release; echo "$VERSION_CODENAME")
{
    printf '%s (%s) %s; urgency=medium\n\n' "$name" "$(cat /build/version)" "$suite"
    printf '  * Built by deepopsctl.\n\n -- deepopsctl <root@localhost>  %s\n\n' "$date"
    cat debian/changelog
} >/build/changelog
mv /build/changelog debian/changelog

step "installing the build dependencies"
apt-get --quiet --yes --no-install-recommends build-dep ./
# shellcheck disable=SC2046  # a list of names on purpose
[ ! -s /build/packages ] || apt-get --quiet --yes --no-install-recommends install $(cat /build/packages)

# a user of this machine may have the id that useradd would choose, and could change what is built; systemd and Debian
# give none of these to anybody. In a user namespace the ids are its own
ids=""
! grep -q ' 4294967295$' /proc/self/uid_map || ids="--no-log-init --uid $((1879048192 + $(od -An -N3 -tu4 /dev/urandom)))"
# shellcheck disable=SC2086  # two options, or none
useradd $ids --create-home builder
chown -R builder /build
# a build that fetches anything is not made of its inputs alone
offline=""
! unshare --net true 2>/dev/null || offline="unshare --net"
step "compiling $name $(cat /build/version)"
export DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)"
$offline setpriv --reuid builder --regid builder --clear-groups env HOME=/home/builder \
    dpkg-buildpackage --build=binary --unsigned-source --unsigned-changes
step "collecting the packages"
mkdir /build/result
mv /build/*.deb /build/*.buildinfo /build/*.changes /build/result/
