#!/bin/sh
# Runs with the path of the new root file system: adds the user and ZooKeeper's start scripts.
set -eu
root=$1
chroot "$root" groupadd --gid 1000 zookeeper
chroot "$root" useradd --uid 1000 --gid 1000 --home-dir / --no-create-home --shell /bin/bash zookeeper
# Of Debian's zookeeper package only Apache's own scripts are wanted, not its jars or its paths.
chroot "$root" sh -euc '
  cd /var/cache/apt/archives
  apt-get -q download zookeeper
  mkdir -p /opt/zookeeper-scripts
  dpkg-deb --fsys-tarfile zookeeper_*.deb | tar -x -C /opt/zookeeper-scripts --strip-components=5 \
    ./usr/share/zookeeper/bin/zkServer.sh ./usr/share/zookeeper/bin/zkCli.sh ./usr/share/zookeeper/bin/zkCleanup.sh
  rm -f zookeeper_*.deb'
# The class archive makes a JVM start in half the time.
chroot "$root" java -Xshare:dump >/dev/null 2>&1
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* "$root"/var/log/*
